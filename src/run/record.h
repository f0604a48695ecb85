// A record per job: what was started, by whom, how it stands. `divisi jobs`, `logs` and the others
// read these; they outlive the `divisi run` that made them.
//
//   JobRecords records(default_records_folder(environment));
//   DIVISI_TRY(JobRecord record, records.claim(JobRecord{.name = "train", ...}));
//   record.state = JobState::kRunning;
//   DIVISI_TRY_STATUS(records.save(record));
//
// A job's folder is $XDG_STATE_HOME/divisi/jobs/NAME (~/.local/state): record.json, and what its
// backend keeps there (output.log, secret). record.json is replaced at once, so that a reader
// never sees half of it. A name is claimed atomically; it is free again once its job has ended.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "launch/text.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace divisi::run {

// kUnknown: the other side does not say (a cluster that is away).
// kRestarting, kRescheduling: the words of the operator.
enum class JobState {
  kPending,
  kStarting,
  kRunning,
  kRestarting,
  kRescheduling,
  kSucceeded,
  kFailed,
  kStopped,
  kUnknown
};
std::string_view state_name(JobState state);  // "Pending", ...
std::optional<JobState> parse_state(std::string_view text);
bool has_ended(JobState state);

// A process of this machine that no other one can be taken for.
struct ProcessId {
  pid_t pid = 0;
  std::string started{};  // boot and start time, as process_of() has it
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};
std::optional<ProcessId> process_of(pid_t pid);  // nothing when there is none
bool is_alive(const ProcessId& process);

struct WorkerRecord {
  int rank = 0;
  std::string name{};  // of a pod
  std::string task{};  // likewise
  int restarts = 0;    // likewise: how often it was made again
  std::string host{};
  bool gpu = false;
  JobState state = JobState::kPending;
  std::optional<ProcessId> process{};  // local: the process that guards it
  std::optional<int> exit_code{};      // 128 + n: by signal n
  std::string reason{};                // why it waits or failed, in words
};

struct JobRecord {
  std::string name{};
  std::string backend{};
  std::vector<std::string> command_line{};  // behind `divisi run`
  std::string folder{};                     // where that was typed
  std::string entry{};
  std::string package{};
  std::string package_digest{};
  std::chrono::system_clock::time_point created{};
  std::optional<std::chrono::system_clock::time_point> ended{};
  bool detached = false;
  JobState state = JobState::kPending;
  std::optional<int> exit_code{};
  std::string reason{};  // one line
  int restarts = 0;      // by `restart` and --watch
  std::vector<WorkerRecord> workers{};
  // The process that looks after the job on this machine: local always; others while attached.
  std::optional<ProcessId> supervisor{};
  json::Value data{};  // the backend's own: Slurm's job number, name space and context, ...
};

json::Value to_json(const JobRecord& record);
Result<JobRecord> record_from(const json::Value& value);

// The exit code of a job by its workers: of the first that failed, 0 when none did.
int exit_code_of(const JobRecord& record);

class JobRecords {
 public:
  explicit JobRecords(std::string folder) : folder_(std::move(folder)) {}

  // Makes the job's folder with its record, which this process looks after from now on.
  // kAlreadyExists when a job of that name has not ended, and a failure when its record cannot be
  // read: nothing is changed then. The folder of one that has ended is set aside until
  // keep_claim(); undo_claim() brings it back in place of the new one.
  Result<JobRecord> claim(JobRecord record) const;
  Status keep_claim(std::string_view name) const;
  Status undo_claim(std::string_view name) const;
  Status save(const JobRecord& record) const;
  Result<JobRecord> load(std::string_view name) const;  // kNotFound with the nearest name
  // The record of the job before, while claim() has set it aside.
  Result<JobRecord> load_set_aside(std::string_view name) const;
  // The same, settled: what its supervisor wrote last, also when that has ended meanwhile.
  Result<JobRecord> load_settled(std::string_view name) const;
  // All of them, by name. Records that cannot be read are left out and named in `problems`.
  std::vector<JobRecord> list(std::vector<std::string>* problems = nullptr) const;
  Status remove(std::string_view name) const;

  std::string job_folder(std::string_view name) const;
  const std::string& folder() const noexcept { return folder_; }

 private:
  std::string old_folder(std::string_view name) const;
  std::string folder_;
};

// $XDG_STATE_HOME/divisi/jobs, or below ~/.local/state.
Result<std::string> default_records_folder(const launch::Environment& environment);

// A record of a local or ssh job whose supervisor is gone says so: it was killed, and its workers
// with it.
void settle(JobRecord& record);

}  // namespace divisi::run
