#include "run/record.h"

#include "base/nearest_name.h"
#include "io/crypto.h"
#include "io/process.h"
#include "kube/time.h"
#include "run/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<JobState, std::string_view>, 9> kStates{{
    {JobState::kPending, "Pending"},
    {JobState::kStarting, "Starting"},
    {JobState::kRunning, "Running"},
    {JobState::kRestarting, "Restarting"},
    {JobState::kRescheduling, "Rescheduling"},
    {JobState::kSucceeded, "Succeeded"},
    {JobState::kFailed, "Failed"},
    {JobState::kStopped, "Stopped"},
    {JobState::kUnknown, "Unknown"},
}};

constexpr int kFormat = 1;  // of record.json

std::string first_line(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The time a process began, in ticks since the machine did: field 22 of /proc/PID/stat.
std::string start_ticks(pid_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid).c_str());
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::size_t at = name_end + 1;
  constexpr int kFieldsBehindName = 19;  // state is the first
  for (int i = 0; i < kFieldsBehindName && at != std::string::npos; ++i) {
    at = line.find(' ', at + 1);
  }
  if (at == std::string::npos) return {};
  // A zombie has ended; only its parent has not looked.
  if (line.substr(name_end + 2, 1) == "Z") return {};
  return line.substr(at + 1, line.find(' ', at + 1) - at - 1);
}

json::Value to_value(const std::optional<ProcessId>& process) {
  if (!process) return {};
  json::Value value;
  value["pid"] = int{process->pid};
  value["started"] = process->started;
  return value;
}

std::optional<ProcessId> process_from(const json::Value* value) {
  if (value == nullptr || value->is_null()) return std::nullopt;
  return ProcessId{static_cast<pid_t>(value->int_at({"pid"}).value_or(0)),
                   std::string(value->string_at({"started"}))};
}

json::Value to_value(const WorkerRecord& worker) {
  json::Value value;
  value["rank"] = worker.rank;
  if (!worker.name.empty()) {
    value["name"] = worker.name;
    value["task"] = worker.task;
    value["restarts"] = worker.restarts;
  }
  value["host"] = worker.host;
  value["gpu"] = worker.gpu;
  value["state"] = state_name(worker.state);
  if (worker.process) value["process"] = to_value(worker.process);
  if (worker.exit_code) value["exitCode"] = *worker.exit_code;
  if (!worker.reason.empty()) value["reason"] = worker.reason;
  return value;
}

std::optional<int> small_int(const json::Value& value, std::string_view key) {
  const auto number = value.int_at({key});
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

WorkerRecord worker_from(const json::Value& value) {
  WorkerRecord worker;
  worker.rank = small_int(value, "rank").value_or(0);
  worker.name = value.string_at({"name"});
  worker.task = value.string_at({"task"});
  worker.restarts = small_int(value, "restarts").value_or(0);
  worker.host = value.string_at({"host"});
  worker.gpu = value.bool_at({"gpu"}).value_or(false);
  worker.state = parse_state(value.string_at({"state"})).value_or(JobState::kUnknown);
  worker.process = process_from(value.find("process"));
  worker.exit_code = small_int(value, "exitCode");
  worker.reason = value.string_at({"reason"});
  return worker;
}

std::vector<std::string> strings_at(const json::Value& value, std::string_view key) {
  std::vector<std::string> texts;
  const json::Value* const found = value.find(key);
  if (found == nullptr || found->as_array() == nullptr) return texts;
  for (const json::Value& item : *found->as_array()) {
    if (item.as_string() != nullptr) texts.push_back(*item.as_string());
  }
  return texts;
}

Status errno_failure(std::string_view doing, const std::string& path) {
  return make_status(Code::kUnavailable, "{} {}: {}", doing, path, errno_text(errno));
}

// Whole or not at all, also when the machine stops: readers and a new start see the old or the new.
Status write_at_once(const std::string& path, const std::string& text) {
  const std::string fresh = fmt::format("{}.{}.{:x}", path, ::getpid(), io::random_u64());
  const io::Descriptor file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return errno_failure("writing", path);
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Status status = errno_failure("writing", path);
      ::unlink(fresh.c_str());
      return status;
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return errno_failure("writing", path);
  return {};
}

// Held by who claims or removes: one at a time.
Result<io::Descriptor> lock_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return failure(Code::kUnavailable, "making {}: {}", folder, error.message());
  ::chmod(folder.c_str(), 0700);
  const std::string path = folder + "/.lock";
  io::Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return failure(errno_failure("opening", path));
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return failure(errno_failure("locking", path));
  }
  return lock;
}

Status make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) return {};
  return errno_failure("making", folder);
}

Status remove_folder(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) return {};
  return make_status(Code::kUnavailable, "removing {}: {}", folder, error.message());
}

// What is not there needs no other name.
Status rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return {};
  return errno_failure("renaming", from);
}

Result<JobRecord> read_record(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto in_file = [&](const Status& status) { return status.with_context(path); };
  DIVISI_TRY(const json::Value value, json::parse(text).map_error(in_file));
  return record_from(value).map_error(in_file);
}

Status set_aside(const std::string& folder, const std::string& old) {
  std::error_code error;
  // A start that was killed halfway may have left the old one alone.
  if (!fs::exists(folder, error)) return {};
  DIVISI_TRY_STATUS(remove_folder(old));
  return rename_folder(folder, old);
}

Status bring_back(const std::string& folder, const std::string& old) {
  DIVISI_TRY_STATUS(remove_folder(folder));
  return rename_folder(old, folder);
}

}  // namespace

std::string_view state_name(JobState state) {
  return std::ranges::find(kStates, state, &std::pair<JobState, std::string_view>::first)->second;
}

std::optional<JobState> parse_state(std::string_view text) {
  const auto found =
      std::ranges::find(kStates, text, &std::pair<JobState, std::string_view>::second);
  return found == kStates.end() ? std::nullopt : std::optional(found->first);
}

bool has_ended(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed || state == JobState::kStopped;
}

std::optional<ProcessId> process_of(pid_t pid) {
  const std::string ticks = start_ticks(pid);
  if (ticks.empty()) return std::nullopt;
  return ProcessId{pid, first_line("/proc/sys/kernel/random/boot_id") + "/" + ticks};
}

bool is_alive(const ProcessId& process) {
  return process.pid > 0 && process_of(process.pid) == process;
}

json::Value to_json(const JobRecord& record) {
  json::Value value;
  value["format"] = kFormat;
  value["name"] = record.name;
  value["backend"] = record.backend;
  value["state"] = state_name(record.state);
  if (record.exit_code) value["exitCode"] = *record.exit_code;
  if (!record.reason.empty()) value["reason"] = record.reason;
  value["created"] = kube::micro_time(record.created);
  if (record.ended) value["ended"] = kube::micro_time(*record.ended);
  value["entry"] = record.entry;
  value["package"] = record.package;
  if (!record.package_digest.empty()) value["packageDigest"] = record.package_digest;
  value["detached"] = record.detached;
  value["restarts"] = record.restarts;
  value["folder"] = record.folder;
  json::Array words;
  for (const std::string& word : record.command_line) words.emplace_back(word);
  value["commandLine"] = std::move(words);
  json::Array workers;
  for (const WorkerRecord& worker : record.workers) workers.push_back(to_value(worker));
  value["workers"] = std::move(workers);
  if (record.supervisor) value["supervisor"] = to_value(record.supervisor);
  if (!record.data.is_null()) value["data"] = record.data;
  return value;
}

Result<JobRecord> record_from(const json::Value& value) {
  JobRecord record;
  record.name = value.string_at({"name"});
  record.backend = value.string_at({"backend"});
  const auto state = parse_state(value.string_at({"state"}));
  const auto created = kube::parse_time(value.string_at({"created"}));
  if (record.name.empty() || record.backend.empty() || !state || !created) {
    return failure(Code::kInvalid, "it is no record of a job");
  }
  if (value.int_at({"format"}).value_or(0) > kFormat) {
    return failure(Code::kInvalid, "it was written by a newer version");
  }
  record.state = *state;
  record.created = *created;
  record.ended = kube::parse_time(value.string_at({"ended"}));
  record.exit_code = small_int(value, "exitCode");
  record.reason = value.string_at({"reason"});
  record.entry = value.string_at({"entry"});
  record.package = value.string_at({"package"});
  record.package_digest = value.string_at({"packageDigest"});
  record.detached = value.bool_at({"detached"}).value_or(false);
  record.restarts = small_int(value, "restarts").value_or(0);
  record.folder = value.string_at({"folder"});
  record.command_line = strings_at(value, "commandLine");
  if (const json::Value* workers = value.find("workers"); workers && workers->as_array()) {
    for (const json::Value& worker : *workers->as_array()) {
      record.workers.push_back(worker_from(worker));
    }
  }
  record.supervisor = process_from(value.find("supervisor"));
  if (const json::Value* data = value.find("data")) record.data = *data;
  return record;
}

int exit_code_of(const JobRecord& record) {
  if (record.exit_code) return *record.exit_code;
  for (const WorkerRecord& worker : record.workers) {
    if (worker.exit_code.value_or(0) != 0) return *worker.exit_code;
  }
  return record.state == JobState::kSucceeded ? 0 : 1;
}

std::string JobRecords::job_folder(std::string_view name) const {
  return folder_ + "/" + std::string(name);
}

std::string JobRecords::old_folder(std::string_view name) const {
  return folder_ + "/.old-" + std::string(name);
}

Result<JobRecord> JobRecords::claim(JobRecord record) const {
  DIVISI_TRY(const io::Descriptor lock, lock_folder(folder_));
  const std::string folder = job_folder(record.name);
  if (const auto before = load_settled(record.name)) {
    if (!has_ended(before->state)) {
      return failure(Code::kAlreadyExists,
                     "a job {} is {} (backend {}); choose another --name, or end it: divisi "
                     "delete {}",
                     record.name, state_name(before->state), before->backend, record.name);
    }
  } else if (before.error().code() != Code::kNotFound) {
    return failure(before.error().code(),
                   "a job {} is there, but {}; choose another --name, or remove {}", record.name,
                   before.error().message(), folder);
  }
  if (const Status aside = set_aside(folder, old_folder(record.name)); !aside.ok()) {
    return failure(aside);
  }
  record.supervisor = process_of(::getpid());
  Status status = make_folder(folder);
  if (status.ok()) status = save(record);
  if (status.ok()) return record;
  (void)bring_back(folder, old_folder(record.name));
  return failure(status);
}

Status JobRecords::keep_claim(std::string_view name) const {
  const auto lock = lock_folder(folder_);
  if (!lock) return lock.error();
  return remove_folder(old_folder(name));
}

Status JobRecords::undo_claim(std::string_view name) const {
  const auto lock = lock_folder(folder_);
  if (!lock) return lock.error();
  return bring_back(job_folder(name), old_folder(name));
}

Status JobRecords::save(const JobRecord& record) const {
  return write_at_once(job_folder(record.name) + "/record.json",
                       json::print(to_json(record), 2) + "\n");
}

Result<JobRecord> JobRecords::load(std::string_view name) const {
  if (const Status status = check_job_name(name); !status.ok()) return failure(status);
  const std::string path = job_folder(name) + "/record.json";
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open() && errno != ENOENT && errno != ENOTDIR) {
    return failure(errno_failure("opening", path));
  }
  if (!in.is_open()) {
    std::vector<std::string> names;
    for (const JobRecord& record : list()) names.push_back(record.name);
    return failure(Code::kNotFound, "there is no job {}{}; divisi jobs lists them", name,
                   did_you_mean(name, names));
  }
  return read_record(path);
}

Result<JobRecord> JobRecords::load_set_aside(std::string_view name) const {
  return read_record(old_folder(name) + "/record.json");
}

Result<JobRecord> JobRecords::load_settled(std::string_view name) const {
  DIVISI_TRY(JobRecord record, load(name));
  while (!has_ended(record.state)) {
    if (record.supervisor && is_alive(*record.supervisor)) return record;
    // It may have written its last word after we read, or have handed the job on, and gone.
    DIVISI_TRY(JobRecord last, load(name));
    const bool same = last.supervisor == record.supervisor;
    record = std::move(last);
    if (!same) continue;
    settle(record);
    return record;
  }
  return record;
}

std::vector<JobRecord> JobRecords::list(std::vector<std::string>* problems) const {
  std::vector<JobRecord> records;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') || !fs::exists(entry->path() / "record.json", error)) continue;
    auto record = load(name);
    if (record) {
      records.push_back(*std::move(record));
    } else if (problems != nullptr) {
      problems->push_back(record.error().message());
    }
  }
  std::ranges::sort(records, {}, &JobRecord::name);
  return records;
}

Status JobRecords::remove(std::string_view name) const {
  const auto lock = lock_folder(folder_);
  if (!lock) return lock.error();
  DIVISI_TRY_STATUS(remove_folder(old_folder(name)));
  return remove_folder(job_folder(name));
}

Result<std::string> default_records_folder(const launch::Environment& environment) {
  if (const auto state = launch::lookup(environment, "XDG_STATE_HOME")) {
    return std::string(*state) + "/divisi/jobs";
  }
  if (const auto home = launch::lookup(environment, "HOME")) {
    return std::string(*home) + "/.local/state/divisi/jobs";
  }
  return failure(Code::kInvalid, "neither XDG_STATE_HOME nor HOME says where jobs are recorded");
}

void settle(JobRecord& record) {
  const bool supervised = record.backend == "local" || record.backend == "ssh";
  if (!supervised || has_ended(record.state)) return;
  if (record.supervisor && is_alive(*record.supervisor)) return;
  record.state = JobState::kFailed;
  record.reason = "the process that looked after it was killed, and its workers with it";
  constexpr int kKilled = 137;
  if (!record.exit_code) record.exit_code = kKilled;
  for (WorkerRecord& worker : record.workers) {
    if (!has_ended(worker.state)) worker.state = JobState::kFailed;
  }
}

}  // namespace divisi::run
