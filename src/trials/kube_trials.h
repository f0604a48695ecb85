// KubeTrials: trials as DIJobs of a cluster, from their creation to their deletion.
//
//   KubeTrials trials(client, jobs, {.space = "default", .project = "cartpole"}, tell);
//   trials.start();
//   trials.run(spec);                      // tell({kStarted}), tell({kLook}) ..., tell({kEnded})
//
// A result is looked for while the pod runs (by a command in it) and once more when the pod or the
// job has ended: then by a helper, a pod that sees the same volume, where the project path is on
// one. A reporter in the pod (src/trial_report) may have posted it to di-server: then it is in the
// status of the job, and so are reports; behind a posted result that cannot be read, the files are
// looked at all the same. Whoever hears kLook answers with judge(): it may know another way to the
// result (a path that the pod shares with this machine), and it alone understands what results are.
//
// Loop only; `tell` runs on the loop. Whatever the server refuses for a moment is tried again, for
// ever; what it refuses for good ends the trial. The destructor leaves the jobs alone: cancel
// first.
#pragma once

#include "kube/client.h"
#include "kube/informer.h"
#include "kube/streams.h"
#include "trials/job_template.h"
#include "trials/pod_results.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::trials {

struct TrialEvent {
  enum class Kind {
    kStarted,    // its pod runs
    kSuspected,  // its pod is gone or has failed, and the job may bring another
    kBack,       // that has happened
    kReports,    // `text` has lines of reports, as a metrics file has them
    kLook,       // is there a result? judge() is called with the answer
    kEnded,      // `status` says how, `text` why; its objects are being deleted
    kGone,       // nothing of it is left, or is ours to delete
    kNotice,     // `text` is for a person; of no trial when `name` is empty
  };
  Kind kind = Kind::kNotice;
  std::string name{};
  std::string status{};  // "success", "fail", "time out" or "cancelled"
  std::string text{};
  PodResults found{};  // of kLook: what the pod had
};

enum class Verdict {
  kAccepted,
  kNothing,  // there is no result yet
  kBad,      // there is one that cannot be read, yet
};

struct KubeTrialsOptions {
  std::string space{};
  std::string project{};
  io::Duration poll_every = std::chrono::seconds(3);
  io::Duration lost_after = std::chrono::seconds(180);
  io::Duration time_out{0};  // from the start of the pod; 0: none
  bool require_exit_zero = true;
  std::vector<std::string> result_names{"result.json", "result.pkl"};
};

class KubeTrials {
 public:
  using Tell = std::function<void(TrialEvent)>;

  KubeTrials(kube::Client& client, JobTemplate jobs, KubeTrialsOptions options, Tell tell);
  ~KubeTrials();
  KubeTrials(const KubeTrials&) = delete;
  KubeTrials& operator=(const KubeTrials&) = delete;

  void start();
  // Whether the cluster has told of everything that is there.
  bool synced() const { return jobs_cache_.synced() && pods_cache_.synced(); }
  Status trouble() const;

  void run(const TrialSpec& spec);
  // A job that another scheduler of this project made.
  void adopt(const std::string& name);
  // Deletes a ConfigMap that another scheduler left without its job.
  void discard(const std::string& name);
  void judge(const std::string& name, Verdict verdict, const std::string& why);
  void cancel(const std::string& name);
  std::size_t left() const { return trials_.size(); }  // with those that are being deleted

 private:
  enum class Stage { kMakingMap, kMakingJob, kRunning, kEnding };
  struct Trial;
  using TrialPtr = std::shared_ptr<Trial>;

  Trial* find(std::string_view name);
  const std::string& name_of_pod(const std::string& pod) const;
  void make(Trial& trial);
  void made(const std::string& name, const Result<json::Value>& outcome);
  void compare(Trial& trial, const Status& exists);
  void made_one(Trial& trial);
  void notice(Trial& trial, std::string text);
  void changed(const std::string& name);
  void observe(Trial& trial);
  void pod_started(Trial& trial);
  void suspect(Trial& trial);
  void lost(const std::string& name);
  void look(Trial& trial);
  void look_for_the_last_time(Trial& trial, std::string why);
  void read_posts(Trial& trial);
  void take_posts(Trial& trial, const json::Value& job);
  void take_report_lines(Trial& trial, const PodFile& file);
  void still_bad(Trial& trial, const std::string& why);
  static std::string why_nothing(const Trial& trial);
  bool start_helper(Trial& trial);
  void observe_helper(Trial& trial);
  void helper_failed(Trial& trial, const std::string& why);
  void fetched(const std::string& name, const Result<int>& code);
  void tell_look(Trial& trial, PodResults found);
  void poll_later(Trial& trial, io::Duration delay);
  void finish(Trial& trial, std::string status, std::string why);
  void read_log(Trial& trial);
  void remove(Trial& trial);
  void removed(const std::string& name, const Status& outcome);
  void told_end(Trial& trial);
  void check_health();
  void probed(const Status& status);
  void later(Trial& trial, io::Duration delay, void (KubeTrials::*step)(Trial&));

  kube::Client& client_;
  const JobTemplate jobs_;
  const KubeTrialsOptions options_;
  const Tell tell_;
  kube::Informer jobs_cache_;
  kube::Informer pods_cache_;
  std::map<std::string, TrialPtr, std::less<>> trials_;
  std::map<std::string, std::string, std::less<>> by_pod_;  // the trial of a pod
  std::unique_ptr<io::Timer> health_timer_;
  std::unique_ptr<http::Call> probe_;
  int unwell_ = 0;     // probes in a row that were not answered
  bool away_ = false;  // and it was told
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The resource of DIJobs.
const kube::Resource& dijobs();

}  // namespace divisi::trials
