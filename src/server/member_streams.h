// MemberStreams: running workers learn of their peers, by server-sent events.
//
//   event: members
//   data: {"members":[...]}
//
// Loop only. A reader is told the list at once and at each change; what changes in one turn of the
// loop is told once, and a change that shows in no list not at all. A comment line comes when
// nothing else does, so that both sides notice a dead path. After the job is gone comes `event:
// gone` and the end. A reader that does not read is dropped; it may come again.
#pragma once

#include "http/server.h"
#include "server/job_source.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace divisi::server {

class MemberStreams {
 public:
  // `describe`: the list of a job's members from the caches, on one line; empty when they cannot
  // say.
  using Describe = std::function<std::string(const json::Value& job)>;

  MemberStreams(io::Reactor& reactor, JobSource& source, Describe describe);

  // `members` is what the reader is told first, `object` the job.
  void add(const std::shared_ptr<http::ServerCall>& call, const JobId& id,
           const json::Value& object, std::string members);

  // All of them, without a word: their readers come again, to another server.
  void end_all();

  std::size_t size() const noexcept { return size_; }

 private:
  struct Stream {
    std::shared_ptr<http::ServerCall> call;
    std::string key;
    std::string uid;  // of the job: one of the same name that comes later is another
    std::string told;
  };
  using StreamPtr = std::shared_ptr<Stream>;

  void follow_jobs();
  void follow_pods();
  void changed(const std::string& key);
  void tell_changed();
  std::vector<StreamPtr> of_job(const std::string& key) const;
  void send(const StreamPtr& stream, std::string text);
  void end(const std::string& key, const std::string& uid);
  void drop(const StreamPtr& stream);
  void tick();

  io::Reactor& reactor_;
  JobSource& source_;
  const Describe describe_;
  std::map<std::string, std::vector<StreamPtr>> by_job_;
  std::size_t size_ = 0;
  std::set<std::string> changed_;  // keys, in this turn
  std::unique_ptr<io::Timer> tick_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server
