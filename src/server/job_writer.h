// JobWriter: changes jobs so that nothing that others wrote meanwhile is lost.
//
//   writer.write(id, [](const json::Value& object) -> Result<std::optional<Patch>> {...}, done);
//
// Loop only. A change is computed from the job as it is and written with that job's version inside;
// when somebody was faster the job is read anew and the change computed again. Changes of one job
// are written one after another, so those of one server never meet; several servers may.
#pragma once

#include "kube/client.h"
#include "kube/retry.h"
#include "server/job_source.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace divisi::server {

struct Patch {
  json::Value body{};         // a merge patch, without metadata
  std::string subresource{};  // "" or "status"
};

class JobWriter {
 public:
  // Nothing: the job is as it should be. A failure ends the write with it.
  using Change = std::function<Result<std::optional<Patch>>(const json::Value& object)>;

  JobWriter(kube::Client& client, JobSource& source) : client_(client), source_(source) {}

  void write(const JobId& id, Change change, std::function<void(Status)> done);

 private:
  struct Operation {
    Change change;
    std::function<void(Status)> done;
    io::TimePoint give_up;
  };
  struct Queue {
    explicit Queue(JobId job) : id(std::move(job)) {}
    JobId id;
    std::deque<Operation> operations;
    std::optional<json::Value> newest;  // what the server answered to the last write
    bool behind = false;                // the cache is older than what somebody wrote
    kube::Backoff backoff{{std::chrono::milliseconds(5), std::chrono::seconds(1)}};
    std::unique_ptr<io::Timer> pause;
  };

  void run(Queue& queue);
  void apply(Queue& queue, const JobView& job);
  void wrote(Queue& queue, Result<json::Value> answer);
  void finish(Queue& queue, Status outcome);
  void later(Queue& queue);
  template <class Function>
  auto guarded(Queue& queue, Function function);

  kube::Client& client_;
  JobSource& source_;
  std::map<std::string, Queue, std::less<>> queues_;  // by key; those with something to do
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server
