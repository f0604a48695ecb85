#include "run/slurm_worker.h"

#include "io/process.h"
#include "launch/text.h"
#include "run/frames.h"
#include "run/job_log.h"
#include "run/local_supervisor.h"
#include "run/signal_pipe.h"
#include "run/supervised_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSlurmLost = 125;
constexpr int kSlurmSignal = 128;
constexpr std::array kEndedStates{"BOOT_FAIL", "CANCELLED",     "COMPLETED", "DEADLINE", "FAILED",
                                  "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",  "TIMEOUT"};

struct Answer {
  int code = 0;
  std::string out{};
  std::string err{};
};

// One of Slurm's programs, to its end.
Result<Answer> ask_slurm(const std::string& program, std::vector<std::string> words,
                         int input = -1) {
  io::SpawnOptions options;
  options.program = program;
  options.arguments = std::move(words);
  options.standard_input = io::Stdio::kNull;
  options.input_from = input;
  options.standard_output = io::Stdio::kPipe;
  options.standard_error = io::Stdio::kPipe;
  // The terminal's Ctrl-C is not for it.
  options.new_process_group = true;
  for (const char* const name : {"DI_NODES", "DI_RANK", "DI_JOB_ID", "DI_SERVER_URL"}) {
    options.environment[name] = std::nullopt;
  }
  DIVISI_TRY(io::Process process, io::Process::spawn(options));
  Answer answer;
  DIVISI_TRY(answer.out, io::read_all(process.output().get()));
  DIVISI_TRY(answer.err, io::read_all(process.error().get()));
  DIVISI_TRY(const io::ExitStatus status, process.wait());
  answer.code = status.ok() ? 0 : std::max(status.code, 1);
  return answer;
}

// "sbatch: error: a\nsbatch: error: b" -> "a; b".
std::string one_complaint(const std::string& program, const std::string& text) {
  std::string line;
  for (const std::string& part : launch::split_list(text, '\n')) {
    std::string_view words = part;
    for (const std::string& head :
         {program + ": ", std::string("error: "), std::string("fatal: ")}) {
      if (words.starts_with(head)) words.remove_prefix(head.size());
    }
    line += (line.empty() ? "" : "; ") + std::string(words);
  }
  return line.empty() ? "it failed without a word" : line;
}

std::string whole_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string field(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + name.size());
  return std::string(rest.substr(0, rest.find_first_of(" \n|")));
}

// "3:0": exit code and signal.
int exit_code_of_pair(std::string_view text) {
  int code = 0;
  int signal = 0;
  const std::size_t colon = std::min(text.find(':'), text.size());
  std::from_chars(text.data(), text.data() + colon, code);
  if (colon < text.size())
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), signal);
  return signal != 0 ? kSlurmSignal + signal : code;
}

pid_t parent_of_process(pid_t pid) {
  const std::string stat = whole_text(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > stat.size()) return 0;
  return static_cast<pid_t>(std::strtol(stat.c_str() + name_end + 4, nullptr, 10));
}

// A file that grows on a shared file system.
class GrowingFile {
 public:
  GrowingFile(std::string path, int task, bool is_error)
      : path_(std::move(path)), task_(task), is_error_(is_error) {}

  void print(bool last) {
    if (!file_) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 65536> piece{};
    while (file_) {
      const ssize_t got = ::read(file_.get(), piece.data(), piece.size());
      if (got <= 0) break;
      say(splitter_.add({piece.data(), static_cast<std::size_t>(got)}));
    }
    if (last) say(splitter_.finish());
  }

 private:
  void say(const std::vector<std::string>& lines) const {
    for (const std::string& line : lines) {
      (void)write_bytes(STDOUT_FILENO,
                        fmt::format("{} {} {}\n", is_error_ ? 'e' : 'o', task_, line));
    }
  }

  std::string path_;
  int task_;
  bool is_error_;
  io::Descriptor file_;
  LineSplitter splitter_;
};

class SlurmWorker {
 public:
  SlurmWorker(const json::Value& plan, std::string job_folder)
      : job_folder_(std::move(job_folder)),
        script_(plan.string_at({"script"})),
        folder_(plan.string_at({"folder"})),
        tasks_(static_cast<int>(plan.int_at({"tasks"}).value_or(0))),
        detached_(plan.bool_at({"detached"}).value_or(false)),
        supervisor_(parent_of_process(::getppid())) {
    for (int task = 0; task < tasks_; ++task) {
      for (const bool error : {false, true}) {
        std::string path = slurm_output(folder_, error);
        path.replace(path.rfind("%t"), 2, std::to_string(task));
        files_.emplace_back(std::move(path), task, error);
      }
    }
    files_.emplace_back(folder_ + "/batch.log", 0, true);
  }

  Result<int> run() {
    if (const Status status = submit(); !status.ok()) return failure(status);
    (void)write_bytes(STDOUT_FILENO, fmt::format("d slurmJob {}\n", id_));
    while (true) {
      if (const Status status = take_signals(); !status.ok()) return failure(status);
      if (left_) return 0;
      DIVISI_TRY(const std::optional<SlurmState> end, look());
      for (GrowingFile& file : files_) file.print(false);
      if (end) return finish(*end);
      pollfd watched{signals_.fd(), POLLIN, 0};
      constexpr int kLookAgain = 200;  // milliseconds
      ::poll(&watched, 1, kLookAgain);
    }
  }

 private:
  Status submit() {
    const std::string id_file = job_folder_ + "/" + kSlurmIdFile;
    const io::Descriptor lock = lock_slurm_job(job_folder_);
    id_ = launch::trimmed(whole_text(id_file));
    if (!id_.empty()) return {};
    if (parent_of_process(::getppid()) != supervisor_) {
      return {Code::kCancelled, "it was killed before Slurm had the job"};
    }
    const io::Descriptor script(::open(script_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!script) return make_status(Code::kUnavailable, "{}: {}", script_, errno_text(errno));
    auto answer = ask_slurm("sbatch",
                            {"--parsable", "--chdir=" + std::filesystem::current_path().string(),
                             "--output=" + folder_ + "/batch.log", "--open-mode=append"},
                            script.get());
    if (!answer) {
      return make_status(
          Code::kUnavailable,
          "sbatch cannot be started: {}; --backend slurm is for machines that submit "
          "to Slurm",
          answer.error().message());
    }
    if (answer->code != 0) {
      return make_status(Code::kUnavailable, "sbatch: {}", one_complaint("sbatch", answer->err));
    }
    // "17;cluster" where there are several.
    id_ = launch::trimmed(answer->out.substr(0, answer->out.find(';')));
    return write_private(id_file, id_ + "\n");
  }

  Status take_signals() {
    while (const auto signal = signals_.next()) {
      if (*signal == SIGPIPE) continue;
      // A detached job goes on when only the process that looked after it has gone.
      if (detached_ && parent_of_process(::getppid()) != supervisor_) {
        left_ = true;
        return {};
      }
      std::vector<std::string> words{id_};
      if (*signal == SIGQUIT) words = {"--full", "--signal=KILL", id_};
      const auto answer = ask_slurm("scancel", words);
      if (!answer) return answer.error().with_context("scancel");
      // A job that waits has no processes to kill.
      if (*signal == SIGQUIT) (void)ask_slurm("scancel", {id_});
    }
    return {};
  }

  // The end, when it has come.
  Result<std::optional<SlurmState>> look() {
    if (Clock::now() < next_look_) return std::optional<SlurmState>();
    constexpr std::chrono::milliseconds kOften{500};
    constexpr std::chrono::seconds kSeldom{5};
    constexpr std::chrono::seconds kYoung{60};
    next_look_ = Clock::now();
    next_look_ += next_look_ - began_ < kYoung ? kOften : std::chrono::milliseconds(kSeldom);
    // Nobody takes the folder for one that was left.
    ::utimensat(AT_FDCWD, folder_.c_str(), nullptr, 0);
    const auto queue = ask_slurm("squeue", {"--noheader", "--jobs=" + id_, "--format=%T|%r"});
    if (queue && queue->code == 0 && !launch::trimmed(queue->out).empty()) {
      const std::string line(launch::trimmed(queue->out));
      const std::string state = line.substr(0, line.find('|'));
      say_state(state, line.substr(std::min(line.find('|') + 1, line.size())));
      if (std::ranges::find(kEndedStates, state) == kEndedStates.end()) {
        return std::optional<SlurmState>();
      }
    }
    return ask_end();
  }

  // It is not in the queue: the controller remembers it for minutes, the accounting for long.
  Result<std::optional<SlurmState>> ask_end() {
    const auto shown = ask_slurm("scontrol", {"show", "job", "--oneliner", id_});
    if (shown && shown->code == 0) {
      const SlurmState state = parse_scontrol(shown->out);
      if (state.ended()) return std::optional<SlurmState>(state);
      if (!state.state.empty()) return std::optional<SlurmState>();
    }
    const auto counted = ask_slurm("sacct", {"-n", "-P", "-X", "-j", id_, "-o", "State,ExitCode"});
    if (counted && counted->code == 0) {
      const SlurmState state = parse_sacct(counted->out);
      if (state.ended()) return std::optional<SlurmState>(state);
      if (!state.state.empty()) return std::optional<SlurmState>();
    }
    if (shown && shown->err.find("Invalid job id") != std::string::npos) {
      return failure(Code::kUnavailable, "Slurm does not know its job {} any longer", id_);
    }
    // A controller that does not answer comes back: the job goes on meanwhile.
    return std::optional<SlurmState>();
  }

  void say_state(const std::string& state, const std::string& why) {
    std::string line = "s Running\n";
    if (state == "PENDING" || state == "CONFIGURING") {
      // Slurm has not looked at it yet where it has no reason.
      line = why.empty() || why == "None"
                 ? std::string("s Pending\n")
                 : fmt::format("s Pending job {} of Slurm waits in the queue: {}\n", id_, why);
    }
    if (line == said_) return;
    (void)write_bytes(STDOUT_FILENO, line);
    said_ = std::move(line);
  }

  int finish(const SlurmState& end) {
    // What nodes wrote last may take a moment over a network.
    constexpr int kLastWords = 300;  // milliseconds
    ::poll(nullptr, 0, kLastWords);
    for (GrowingFile& file : files_) file.print(true);
    const SlurmFailure first = first_slurm_failure(whole_text(folder_ + "/batch.log"));
    if (end.state == "COMPLETED") return 0;
    if (end.state == "FAILED" && !first.text.empty()) {
      std::ofstream(reason_file(job_folder_, 0)) << first.text;
      if (first.code != 0) return first.code;
    } else {
      std::ofstream(reason_file(job_folder_, 0))
          << fmt::format("job {} of Slurm is {}", id_, end.state);
    }
    if (end.state == "CANCELLED") return kSlurmSignal + SIGTERM;
    return end.code != 0 ? end.code : 1;
  }

  const SignalPipe signals_;
  const std::string job_folder_;
  const std::string script_;
  const std::string folder_;
  const int tasks_;
  const bool detached_;
  const pid_t supervisor_;
  std::string id_;
  std::string said_;
  std::vector<GrowingFile> files_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point next_look_ = began_;
  bool left_ = false;
};

}  // namespace

bool SlurmState::ended() const {
  return std::ranges::find(kEndedStates, state) != kEndedStates.end();
}

SlurmState parse_scontrol(std::string_view text) {
  SlurmState found;
  found.state = field(text, "JobState=");
  found.code = exit_code_of_pair(field(text, " ExitCode="));
  return found;
}

SlurmState parse_sacct(std::string_view text) {
  SlurmState found;
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t bar = std::min(line.find('|'), line.size());
  // "CANCELLED by 1000"
  found.state = line.substr(0, std::min(bar, line.find(' ')));
  if (bar < line.size()) found.code = exit_code_of_pair(line.substr(bar + 1));
  return found;
}

SlurmFailure first_slurm_failure(std::string_view text) {
  SlurmFailure found;
  for (const std::string& line : launch::split_list(text, '\n')) {
    const std::size_t at = std::min(line.find(": task "), line.find(": tasks "));
    if (!line.starts_with("srun: error: ") || at == std::string::npos) continue;
    constexpr std::string_view kExited = "Exited with exit code ";
    const std::string_view rest = std::string_view(line).substr(line.find(' ', at + 2));
    found.text = fmt::format("worker{}", rest);
    const std::size_t code = rest.find(kExited);
    if (code != std::string_view::npos) {
      const std::string_view digits = rest.substr(code + kExited.size());
      std::from_chars(digits.data(), digits.data() + digits.size(), found.code);
    }
    break;
  }
  return found;
}

json::Value to_json(const SlurmPlan& plan) {
  json::Value value;
  value["script"] = plan.script;
  value["folder"] = plan.folder;
  value["tasks"] = plan.tasks;
  value["detached"] = plan.detached;
  return value;
}

io::Descriptor lock_slurm_job(const std::string& job_folder) {
  const std::string path = job_folder + "/" + kSlurmPlanFile;
  io::Descriptor lock(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  while (lock && ::flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return lock;
}

std::string slurm_output(const std::string& folder, bool error) {
  return folder + (error ? "/err.%t" : "/out.%t");
}

int slurm_worker_main(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) {
    std::fprintf(stderr, "divisi %s is started by divisi run\n", kSlurmWorkerCommand);
    return 2;
  }
  try {
    const auto plan = json::parse(whole_text(arguments[0]));
    const std::string folder = std::filesystem::path(arguments[0]).parent_path().string();
    const Result<int> code =
        plan ? SlurmWorker(*plan, folder).run() : Result<int>(failure(plan.error()));
    if (code) return *code;
    std::ofstream(reason_file(folder, 0)) << code.error().message();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "divisi run: %s\n", error.what());
  }
  return kSlurmLost;
}

}  // namespace divisi::run
