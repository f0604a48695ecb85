// Job: a DIJob of the v2alpha1 API as the operator understands it, whichever form it has.
//
//   DIVISI_TRY(Job job, read_job(object));     // kInvalid: cannot be decoded at all
//   if (const Status bad = check(job); !bad.ok()) ... the job fails with bad.message()
//
// Everything here is a pure function of the object. Defaults are filled in: the names of typed
// tasks, one replica, star topology, and so on.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

// By shape, not by version: `tasks`, or one `template` for all workers.
enum class Form { kTasks, kTemplate };

enum class CleanPods { kRunning, kAll, kNone };

// What an exit code of the main container means.
enum class ExitAction { kCount, kIgnore, kFailJob };
struct ExitRule {
  std::vector<int> codes{};
  ExitAction action = ExitAction::kCount;
};

// Whether a finished pod is made again.
enum class Restart { kOnFailure, kNever, kAlways };

// Nothing means without a limit.
using Limit = std::optional<int>;

struct Task {
  std::string name{};
  std::string type{};  // learner, collector, evaluator, none
  int replicas = 1;
  bool sized = false;          // replicas is written; otherwise it is 1, or what spec.replicas says
  json::Value pod_template{};  // metadata and spec; `containers` beside an empty spec is inside it

  // Beyond the reference, off unless asked for.
  Restart restart = Restart::kOnFailure;
  std::optional<Limit> backoff_limit{};    // a budget of its own
  bool completes_job = false;              // all its pods have succeeded: so has the job
  int min_available = 0;                   // a gang of at least so many; 0: all replicas
  std::vector<std::string> start_after{};  // tasks whose pods are ready first
  std::vector<ExitRule> exit_rules{};      // before those of the job
};

struct Job {
  std::string space{};
  std::string name{};
  std::string uid{};
  std::int64_t generation = 0;
  bool deleting = false;
  std::string created{};  // RFC 3339

  Form form = Form::kTasks;
  std::string priority = "normal";
  CleanPods clean_pods = CleanPods::kRunning;
  bool preemptible = false;
  Limit backoff_limit = 3;  // of a template form: 0
  std::vector<json::Value> volumes{};
  std::vector<Task> tasks{};  // of a template form: one, without a name, `min_replicas` of it

  // Template form.
  std::string group{};
  int min_replicas = 0;
  std::optional<int> max_replicas{};
  std::string topology = "star";  // star, alone, mesh
  int parallel_workers = 1;

  // Beyond the reference.
  std::optional<int> replicas{};  // spec.replicas, what `kubectl scale` sets
  bool suspended = false;
  std::optional<std::chrono::seconds> keep_finished{};    // ttlSecondsAfterFinished
  std::optional<std::chrono::seconds> active_deadline{};  // activeDeadlineSeconds
  std::vector<ExitRule> exit_rules{};
  std::string restarted_at{};  // annotation diengine/restartedAt

  std::vector<std::string> warnings{};  // what was understood in spite of how it is written
  std::vector<std::string> faults{};    // values that no field of that name has; for check()

  const Task* find_task(std::string_view task) const noexcept;
  int want() const noexcept;  // the sum of the tasks' replicas
};

// Fails for what has neither form, both, the form of the first generation (its controller is
// another), or fields of the wrong kind; the message says which.
Result<Job> read_job(const json::Value& object);

// Engine processes of a job; beyond is a slip of the pen.
inline constexpr int kMaxReplicas = 10'000;

// As if the task of that index, or the gang of a template form, had so many replicas.
Job resized(Job job, std::size_t task, int replicas);

// The first violation of what a job must be, with the text that clients expect:
// "the number of collector task is more than one".
Status check(const Job& job);

// The task whose size `spec.replicas`, `kubectl scale` and di-server change when none is named:
// the collector task, else the only one; null when there is no such.
const Task* scaled_task(const Job& job) noexcept;

}  // namespace divisi::dijob
