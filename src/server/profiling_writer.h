// ProfilingWriter: engines report as often as they like; each job is written at most once in a
// while.
//
// Loop only. Reports that come meanwhile are merged; the last state is always written. A write that
// fails is tried again with what came since, as long as the job is there.
#pragma once

#include "server/job_writer.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace divisi::server {

class ProfilingWriter {
 public:
  ProfilingWriter(io::Reactor& reactor, JobWriter& writer,
                  io::Duration every = std::chrono::seconds(2))
      : reactor_(reactor), writer_(writer), every_(every) {}

  // `object` is the job as it is known now. kInvalid when it would have more profilings than a job
  // may have; otherwise the report is kept and will be written.
  Status report(const JobId& id, const json::Value& object, const json::Value& report);

  // Writes at once what still waits, each report once; `done` runs when that is over.
  void drain(std::function<void()> done);

 private:
  struct Job {
    JobId id;
    std::string uid;                   // a job of the same name that comes later is another
    json::Value waiting;               // null: nothing
    json::Value writing;               // null: nothing is on its way
    std::unique_ptr<io::Timer> timer;  // always, while nothing is on its way
  };

  void write(Job& job);
  void wrote(const std::string& key, const std::string& uid, const Status& outcome);
  void due(const std::string& key);
  void tell_if_drained();

  io::Reactor& reactor_;
  JobWriter& writer_;
  const io::Duration every_;
  std::map<std::string, Job> jobs_;  // by key
  std::function<void()> drained_;    // set: what comes in is written at once, and not again
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server
