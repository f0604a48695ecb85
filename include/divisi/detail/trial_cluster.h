// What a front end in another language needs to run trials as DIJobs of a Kubernetes cluster.
// Python's is python/native/trials.cc. Not for programs: anything here may change with any version.
#pragma once

#include "divisi/export.h"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::detail {

// Which cluster, and the template of the jobs.
struct TrialClusterOptions {
  std::string yaml{};         // the text of the template
  std::string yaml_name{};    // names it in messages
  std::string remote_path{};  // empty: as the template says
  std::string reporter{};     // put in front of the command of the first task; empty: nothing
  std::string kubeconfig{};   // empty: as kubectl finds it
  std::string context{};      // empty: the current one
  std::string space{};        // empty: as the template, then the context says
};

// How the trials of one project are watched.
struct TrialWatchOptions {
  std::string project{};
  std::chrono::nanoseconds poll_every{};
  std::chrono::nanoseconds lost_after{};
  std::chrono::nanoseconds time_out{};  // 0: none
  bool require_exit_zero = true;
  std::vector<std::string> result_names{};  // files that are looked for, the preferred one first
};

// A DIJob or ConfigMap that was there before.
struct FoundObject {
  std::string kind{};
  std::string name{};
  std::string project{};  // empty: it is no trial's
  std::string config{};   // the digest of the trial's configuration
  std::string trial{};
};

// One trial, as src/trials/job_template.h has it.
struct ClusterTrial {
  std::string name{};
  std::string trial{};
  std::string task{};
  std::string study{};
  std::string config{};
  std::string main_file{};
};

// A file out of a pod.
struct ClusterFile {
  std::string path{};
  std::string bytes{};
};

// `kind` is "begin" (as it was posted), "started", "suspected", "back", "reports" (lines in
// `text`), "look", "ended" or "notice".
struct ClusterEvent {
  std::string kind{};
  std::string name{};
  std::string status{};
  std::string text{};
  std::optional<ClusterFile> result{};
  std::optional<ClusterFile> side{};
};

// A cluster that runs trials. Any thread may call; what goes wrong outside of a trial is thrown
// as divisi::Error, a wrong template or name as UsageError.
class DIVISI_API TrialCluster {
 public:
  // Reads the template and checks once that the cluster answers and allows what is needed.
  explicit TrialCluster(const TrialClusterOptions& options);
  ~TrialCluster();
  TrialCluster(const TrialCluster&) = delete;
  TrialCluster& operator=(const TrialCluster&) = delete;

  // Of the template.
  const std::string& name() const;
  const std::string& remote_path() const;
  std::string pod_name(std::string_view task_name) const;
  void check_names(std::string_view project, std::string_view longest_task_name) const;
  // The documents of a trial as a file shows them. After watch().
  std::string job_file(const ClusterTrial& trial) const;

  // All DIJobs and ConfigMaps of the name space.
  std::vector<FoundObject> found() const;
  // Once, before the first trial. Returns when the project's jobs are known.
  void watch(const TrialWatchOptions& options);

  // Makes next() return "begin" with this name.
  void post(const std::string& name);
  void run(const ClusterTrial& trial);
  void adopt(const std::string& name);
  // Deletes a ConfigMap that another scheduler left without its job.
  void discard(const std::string& name);
  // The answer to "look": 0 it was accepted, 1 there is none, 2 it cannot be read.
  void judge(const std::string& name, int verdict, const std::string& why);
  void cancel(const std::string& name);

  // The next event; nothing when so much time has passed.
  std::optional<ClusterEvent> next(std::chrono::nanoseconds within);
  // Whether the objects of all trials were deleted within that time.
  bool wait_until_gone(std::chrono::nanoseconds within);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace divisi::detail
