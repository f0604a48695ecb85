// JobWatch: one job of a cluster while somebody looks at it: its objects, its pods, their output.
//
//   JobWatch watch(link, kind, record, {.follow = true});
//   poll(watch.fd()) ...  if (watch.take_changed()) watch.seen();  watch.take_lines();
//
// One thread uses it; the rest is on the loop of the link's session.
#pragma once

#include "io/process.h"
#include "kube/informer.h"
#include "run/cluster_link.h"
#include "run/pod_logs.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace divisi::run {

class JobWatch {
 public:
  struct Seen {
    bool synced = false;                // the first lists are complete
    std::vector<json::Value> owners{};  // the DIJob, or the Jobs
    std::vector<json::Value> pods{};    // those of these owners
    std::uint64_t errors = 0;           // of the watches, so far
    bool logs_settled = false;
    Status trouble{};  // what the server does not let us see
  };

  JobWatch(ClusterLink& link, BackendKind kind, const JobRecord& record, PodLogsOptions options);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  int fd() const noexcept { return wake_.get(); }  // readable: there is something to take
  std::vector<OutputLine> take_lines();
  // Whether seen() may differ from what it was at the last time.
  bool take_changed() noexcept { return changed_.exchange(false); }
  Seen seen();
  // Pods as they were read just now: the watch may be a moment behind.
  void look_at(std::vector<json::Value> pods);

 private:
  void add_line(OutputLine line);
  void pod_changed(const kube::ObjectPtr& pod);
  bool is_ours(const json::Value& object, bool by_owner) const;
  void tell_change();
  void wake();

  ClusterLink& link_;
  const std::vector<std::string> uids_;
  io::Descriptor wake_;
  std::atomic<bool> changed_ = true;
  // Of the loop.
  std::unique_ptr<kube::Informer> owners_;
  std::unique_ptr<kube::Informer> pods_;
  std::unique_ptr<PodLogs> logs_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<OutputLine> lines_;
  std::size_t bytes_ = 0;
  bool paused_ = false;
};

// By which its pods and Jobs are found.
std::string pod_labels(BackendKind kind, const std::string& name);
// The uids of the DIJob or the Jobs, as the record has them.
std::vector<std::string> owner_uids(const JobRecord& record);
// Those of `pods` that belong to one of these.
std::vector<json::Value> pods_of(std::vector<json::Value> pods,
                                 const std::vector<std::string>& uids);

}  // namespace divisi::run
