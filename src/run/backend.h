// Backend: where jobs run. One class each: local processes, ssh hosts, Slurm, the DIJob operator,
// plain Kubernetes.
//
//   DIVISI_TRY(auto backend, make_backend(BackendKind::kLocal, options));
//   DIVISI_TRY(RunJob job, backend->plan(options, package.entry));
//   backend->documents(job, &package) / backend->script(job, &package)   // --dry-run: asks nobody
//   backend->start(job, &package, records, record, fd, sink)  // the job runs, or nothing is left
//   backend->follow(records, record, {.wake_fd = signals, .on_wake = ...}, sink)
//
// How a backend is added: a class in its own files, its line in make_backend() (backends.cc).
// One thread uses it. Everything about a running job comes from its record and the other side, so
// that another process than the one that started it can follow, stop and delete it.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "run/job.h"
#include "run/options.h"
#include "run/output.h"
#include "run/package.h"
#include "run/record.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace divisi::run {

struct FollowOptions {
  bool follow = true;     // until the job has ended; otherwise what there is now
  bool previous = false;  // of the replicas before the last restart
  // Empty: all. A worker with a name is also chosen by that, and by its task's.
  std::set<int> ranks{};
  std::set<std::string> workers{};
  bool notes = false;  // also what is about the job itself
  std::optional<std::chrono::system_clock::time_point> since{};
  int wake_fd = -1;                 // while it is readable, `on_wake` is called
  std::function<bool()> on_wake{};  // takes what woke it; false: give up with kCancelled
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendKind kind() const noexcept = 0;
  // Whether the package is cut and handed to start(); otherwise workers read it where it is, and
  // only its entry is checked.
  virtual bool sends_package() const noexcept { return true; }

  // The job with this backend's hosts and paths; make_job() does the rest. `entry` as
  // check_entry() found it. Asks nobody.
  virtual Result<RunJob> plan(const RunOptions& options, const std::string& entry) const = 0;

  // What --dry-run prints: as documents (YAML, JSON), and as a shell script that does the same.
  // `package` is null when the job has a command.
  virtual Result<std::vector<json::Value>> documents(const RunJob& job,
                                                     const PackageCut* package) const = 0;
  virtual Result<std::string> script(const RunJob& job, const PackageCut* package) const = 0;

  // Starts a job whose record was claimed. `package` is null when the job has a command. Writes
  // the record (state, workers, data) before the other side could be forgotten: what was started
  // is in it even if this process is killed. After a failure nothing runs and nothing was left.
  // `attached_fd`: the read end of a pipe; the job ends when its write end closes, that is with
  // the `divisi run` that holds it, however that ends. -1: it goes on. A cluster has nobody to hold
  // the other end: its jobs go on.
  virtual Status start(const RunJob& job, const PackageCut* package, const JobRecords& records,
                       JobRecord& record, int attached_fd, OutputSink& sink) = 0;

  // How it stands now, from the other side: state, workers, exit_code, reason of `record`.
  // kUnavailable when that cannot be asked.
  virtual Status refresh(const JobRecords& records, JobRecord& record) = 0;

  // Lines in order per worker. With `follow` until the job has ended; `record` is refreshed then.
  virtual Status follow(const JobRecords& records, JobRecord& record, const FollowOptions& options,
                        OutputSink& sink) = 0;

  // Asks the job to end; `now`: without grace. Does not wait: follow() sees the end. A job that
  // has ended is no failure.
  virtual Status stop(const JobRecords& records, JobRecord& record, bool now) = 0;

  // Removes what the job left on the other side (after stop()). The record is removed by the
  // caller.
  virtual Status remove(const JobRecords& records, const JobRecord& record) = 0;

  // Another number of replicas of a job that has not ended. `task` may be empty where one is meant
  // without its name. kInvalid with the reason for a task that it does not have, or a size that it
  // cannot have.
  virtual Status scale(const JobRecords& records, JobRecord& record, const std::string& task,
                       int replicas);
  // true: its workers end, the job stays; false brings them back.
  virtual Status suspend(const JobRecords& records, JobRecord& record, bool suspended);

  // Jobs of the other side that have no record here (`divisi jobs` shows them as well).
  virtual Result<std::vector<JobRecord>> list_others() { return std::vector<JobRecord>(); }
};

// Fails with one line when there is no such backend in this build.
Result<std::unique_ptr<Backend>> make_backend(BackendKind kind, const RunOptions& options);

// The default: dijob where the kubeconfig's cluster has the type, else local.
struct BackendChoice {
  BackendKind kind = BackendKind::kLocal;
  std::string reason{};  // "no kubeconfig", "cluster X has the type DIJob"
};
BackendChoice choose_backend(const RunOptions& options);

// Follows without printing, until the job has ended.
Status wait_until_ended(Backend& backend, const JobRecords& records, JobRecord& record);

// What is shared by those that render: documents to YAML or JSON text.
std::string print_documents(const std::vector<json::Value>& documents, RenderFormat format);

}  // namespace divisi::run
