// The runner, in this process and as a launcher of its own. The worker functions here are entered
// by re-execution of this test program.
#include "runtime/runner.h"

#include "base/log.h"
#include "base/sanitizer.h"
#include "divisi/main.h"
#include "io/process.h"
#include "runtime/entry.h"
#include "runtime/fiber.h"
#include "runtime/fiber_stack.h"
#include "runtime/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace {

using divisi::Status;
using divisi::runtime::WorkerConfig;
using divisi::runtime::WorkerHooks;

WorkerConfig current;
int attempts = 0;

const bool kHooksInstalled = [] {
  WorkerHooks hooks;
  hooks.activate = [](const WorkerConfig& config) {
    current = config;
    if (config.labels.contains("refused"))
      return Status(divisi::Code::kUnauthorized, "wrong secret");
    if (config.labels.contains("late"))
      return Status(divisi::Code::kTimeout, "node 7 did not come");
    if (config.labels.contains("occupied") && config.node_id == 1) {
      return Status(divisi::Code::kUnavailable, "cannot listen on tcp://127.0.0.1:1: in use");
    }
    return Status();
  };
  hooks.next_attempt = [](int retries) { attempts = retries; };
  divisi::runtime::set_worker_hooks(std::move(hooks));
  return true;
}();

struct StaticObject {
  int value = 11;
};
const StaticObject kMadeBeforeMain;

int says_its_name(const std::vector<std::string>& args) {
  std::printf("node %d of %d, local %d, %zu args\n", current.node_id, current.n_workers,
              current.local_id, args.size());
  return kMadeBeforeMain.value == 11 ? 0 : 1;
}
DIVISI_MAIN(says_its_name)

int node_0_throws() {
  if (current.node_id == 0) throw std::runtime_error("uncaught exception");
  while (true) ::pause();
}
DIVISI_MAIN(node_0_throws)

int node_1_returns_7() {
  return current.node_id == 1 ? 7 : 0;
}
DIVISI_MAIN(node_1_returns_7)

int node_1_exits_5() {
  if (current.node_id == 1) std::exit(5);
  return 0;
}
DIVISI_MAIN(node_1_exits_5)

int node_1_fails_once() {
  if (current.node_id == 1 && attempts == 0) throw std::logic_error("P1 Error");
  std::printf("attempts %d\n", attempts);
  return 0;
}
DIVISI_MAIN(node_1_fails_once)

int crashes(const std::vector<std::string>& args) {
  ::raise(std::stoi(args.at(0)));
  return 0;
}
DIVISI_MAIN(crashes)

// As a middleware does in async mode: on a thread of a pool.
int overflows_a_fiber() {
  std::thread([] {
    divisi::runtime::Fiber fiber([] {
      volatile char bytes[divisi::runtime::kFiberStackBytes + 64];
      bytes[0] = 1;
      std::printf("%d\n", bytes[0]);
    });
    fiber.resume();
  }).join();
  return 0;
}
DIVISI_MAIN(overflows_a_fiber)

int prints_much() {
  for (int i = 0; i < 20'000; ++i) std::printf("line %d of node %d\n", i, current.node_id);
  std::printf("no newline at the end");
  return 0;
}
DIVISI_MAIN(prints_much)

int starts_a_program() {
  return std::system("test -z \"$DIVISI_WORKER_FD\" && test ! -e /proc/self/fd/9") == 0 ? 0 : 1;
}
DIVISI_MAIN(starts_a_program)

int starts_workers_itself() {
  divisi::runtime::PlanOptions options;
  options.n_parallel_workers = 2;
  options.common.entry.name = "says_its_name";
  const auto plan = divisi::runtime::plan_workers(options);
  return divisi::runtime::run_workers({}, plan->workers).exit_code;
}
DIVISI_MAIN(starts_workers_itself)

int waits_for_ever() {
  while (true) ::pause();
}
DIVISI_MAIN(waits_for_ever)

}  // namespace

namespace divisi::runtime {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using namespace std::chrono_literals;

constexpr auto kDeadline = 60'000;  // milliseconds; only a broken program waits so long

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = temp_directory() + "/runner_test_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

 private:
  std::string path_;
};

std::vector<WorkerConfig> workers(int n, const std::string& function,
                                  const std::function<void(WorkerConfig&)>& change = {}) {
  PlanOptions options;
  options.n_parallel_workers = n;
  options.common.entry.name = function;
  if (change) change(options.common);
  auto plan = plan_workers(options);
  EXPECT_TRUE(plan.has_value());
  return plan->workers;
}

struct Captured {
  RunResult result;
  std::string output;
  std::string error;
};

Captured run_captured(const RunnerOptions& options, const std::vector<WorkerConfig>& configs) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Captured captured;
  captured.result = run_workers(options, configs);
  captured.output = ::testing::internal::GetCapturedStdout();
  captured.error = ::testing::internal::GetCapturedStderr();
  return captured;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(RunnerTest, EveryWorkerEntersTheFunctionWithItsOwnConfiguration) {
  auto configs = workers(3, "says_its_name", [](WorkerConfig& c) { c.args = {"a", "b"}; });
  const Captured run = run_captured({}, configs);
  EXPECT_EQ(run.result.exit_code, 0) << run.error;
  EXPECT_TRUE(run.result.ok());
  EXPECT_THAT(lines_of(run.output),
              ::testing::UnorderedElementsAre("[node 0] node 0 of 3, local 0, 2 args",
                                              "[node 1] node 1 of 3, local 1, 2 args",
                                              "[node 2] node 2 of 3, local 2, 2 args"));
}

TEST(RunnerTest, ReportsStartJoinAndEndOfEachWorker) {
  std::vector<WorkerEvent> events;
  RunnerOptions options;
  options.on_event = [&](const WorkerEvent& event) { events.push_back(event); };
  run_captured(options, workers(2, "says_its_name"));
  for (const auto kind :
       {WorkerEvent::Kind::kStarted, WorkerEvent::Kind::kJoined, WorkerEvent::Kind::kEnded}) {
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [&](const WorkerEvent& event) { return event.kind == kind; }),
              2);
  }
}

TEST(RunnerTest, A053AnExceptionEndsTheRunWithItsTextAndNode) {
  RunnerOptions options;
  options.grace = 10ms;
  const Captured run = run_captured(options, workers(3, "node_0_throws"));
  EXPECT_EQ(run.result.exit_code, 1);
  EXPECT_EQ(run.result.failed_node, 0);
  EXPECT_EQ(run.result.status.message(), "node 0: std::runtime_error: uncaught exception");
  EXPECT_THAT(run.error, AllOf(HasSubstr("[node 0] "), HasSubstr("uncaught exception")));
}

TEST(RunnerTest, AMainThatReturnsAnErrorFailsTheRun) {
  const Captured run = run_captured({}, workers(2, "node_1_returns_7"));
  EXPECT_EQ(run.result.exit_code, 1);
  EXPECT_EQ(run.result.status.message(), "node 1: main returned 7");
}

TEST(RunnerTest, AMainThatCallsExitFailsTheRun) {
  const Captured run = run_captured({}, workers(2, "node_1_exits_5"));
  EXPECT_EQ(run.result.exit_code, 1);
  EXPECT_EQ(run.result.status.message(), "node 1: ended with exit code 5");
}

TEST(RunnerTest, A055AFailedMainIsTriedAgainInTheSameProcess) {
  const Captured run = run_captured({}, workers(3, "node_1_fails_once", [](WorkerConfig& c) {
                                      c.auto_recover = true;
                                      c.max_retries = 1;
                                    }));
  EXPECT_EQ(run.result.exit_code, 0) << run.result.status.message();
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("[node 1] attempts 1"), HasSubstr("[node 2] attempts 0")));
  EXPECT_THAT(run.error, HasSubstr("P1 Error"));
}

TEST(RunnerTest, A056WithoutRetriesLeftTheRunFails) {
  const Captured run = run_captured({}, workers(3, "node_1_fails_once", [](WorkerConfig& c) {
                                      c.auto_recover = true;
                                      c.max_retries = 0;
                                    }));
  EXPECT_EQ(run.result.exit_code, 1);
  EXPECT_EQ(run.result.status.message(), "node 1: std::logic_error: P1 Error");
}

TEST(RunnerTest, A065AWorkerThatCannotListenFailsTheRunWithTheAddress) {
  const Captured run = run_captured(
      {}, workers(2, "waits_for_ever", [](WorkerConfig& c) { c.labels = {"occupied"}; }));
  EXPECT_EQ(run.result.exit_code, 3);
  EXPECT_EQ(run.result.status.code(), Code::kUnavailable);
  EXPECT_THAT(run.result.status.message(),
              AllOf(StartsWith("node 1: "), HasSubstr("tcp://127.0.0.1:1")));
}

TEST(RunnerTest, ARefusedOrLateWorkerFailsTheRunWithCode3) {
  const Captured refused = run_captured(
      {}, workers(1, "says_its_name", [](WorkerConfig& c) { c.labels = {"refused"}; }));
  EXPECT_EQ(refused.result.exit_code, 3);
  EXPECT_EQ(refused.result.status.code(), Code::kUnauthorized);
  const Captured late =
      run_captured({}, workers(1, "says_its_name", [](WorkerConfig& c) { c.labels = {"late"}; }));
  EXPECT_EQ(late.result.exit_code, 3);
  EXPECT_EQ(late.result.status.message(), "node 0: node 7 did not come");
}

TEST(RunnerTest, AFunctionThatIsNotRegisteredIsAUsageError) {
  const Captured run = run_captured({}, workers(2, "says_its_nam"));
  EXPECT_EQ(run.result.exit_code, 2);
  EXPECT_THAT(run.result.status.message(), HasSubstr("did you mean says_its_name?"));
}

TEST(RunnerTest, ACrashPrintsABacktraceWithTheNodeAndKeepsItsSignal) {
  std::vector<int> crash_signals = {SIGABRT};
  if (!kSanitizer) crash_signals.push_back(SIGSEGV);  // a sanitizer has its own report, and exits
  for (const int signal : crash_signals) {
    const Captured run = run_captured(
        {}, workers(2, "crashes", [&](WorkerConfig& c) { c.args = {std::to_string(signal)}; }));
    const std::string name = signal == SIGABRT ? "SIGABRT" : "SIGSEGV";
    const std::string node = std::to_string(run.result.failed_node);
    EXPECT_EQ(run.result.exit_code, 128 + signal);
    EXPECT_THAT(run.result.status.message(), HasSubstr("was killed by " + name));
    EXPECT_THAT(run.error, HasSubstr("[node " + node + "] node " + node + " crashed: " + name));
    EXPECT_THAT(run.result.stderr_tail, HasSubstr("(+0x"));
  }
}

TEST(RunnerTest, AMiddlewareThatOverflowsItsStackIsToldWhatToDo) {
  const Captured run = run_captured({}, workers(2, "overflows_a_fiber"));
  if (kSanitizer) {  // it has its own report, and exits
    EXPECT_NE(run.result.exit_code, 0);
    EXPECT_THAT(run.error, HasSubstr("Sanitizer"));
    return;
  }
  EXPECT_EQ(run.result.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(run.error, HasSubstr("crashed: SIGSEGV"));
  EXPECT_THAT(run.error, HasSubstr("DIVISI_FIBER_STACK_KIB"));
}

TEST(RunnerTest, LinesOfSeveralWorkersStayWhole) {
  const Captured run = run_captured({}, workers(2, "prints_much"));
  EXPECT_EQ(run.result.exit_code, 0);
  const auto lines = lines_of(run.output);
  ASSERT_THAT(lines, SizeIs(2 * 20'001));
  EXPECT_THAT(lines, Contains("[node 1] line 19999 of node 1"));
  EXPECT_THAT(lines, Contains("[node 0] no newline at the end"));
  EXPECT_THAT(lines, Each(StartsWith("[node ")));
}

TEST(RunnerTest, ThePrefixCanBeSwitchedOff) {
  RunnerOptions options;
  options.prefix = false;
  const Captured run = run_captured(options, workers(1, "says_its_name"));
  EXPECT_EQ(run.output, "node 0 of 1, local 0, 0 args\n");
}

TEST(RunnerTest, ALogDirectoryGetsOneFileANode) {
  const TemporaryDirectory directory;
  RunnerOptions options;
  options.log_dir = directory.path() + "/deep/logs";
  run_captured(options, workers(2, "says_its_name"));
  std::ifstream file(options.log_dir + "/node_1.log");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "node 1 of 2, local 1, 0 args");
}

TEST(RunnerTest, ALogDirectoryThatCannotBeMadeIsAUsageError) {
  RunnerOptions options;
  options.log_dir = "/proc/no/such";
  const RunResult result = run_workers(options, workers(1, "says_its_name"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.status.message(), HasSubstr("/proc/no/such"));
}

TEST(RunnerTest, ProgramsThatAWorkerStartsAreNoWorkers) {
  const Captured run = run_captured({}, workers(1, "starts_a_program"));
  EXPECT_EQ(run.result.exit_code, 0) << run.error;
}

TEST(RunnerTest, AWorkerMayStartWorkersOfItsOwn) {
  const Captured run = run_captured({}, workers(1, "starts_workers_itself"));
  EXPECT_EQ(run.result.exit_code, 0) << run.error;
  EXPECT_THAT(run.output, HasSubstr("[node 0] [node 1] node 1 of 2"));
}

TEST(RunnerTest, ACommandGetsItsConfigurationInVariables) {
  RunnerOptions options;
  options.command = {"/bin/sh", "-c",
                     "echo id=$DITASK_NODE_ID n=$DITASK_N_WORKERS $0 fd=$DIVISI_WORKER_FD", "arg"};
  const Captured run = run_captured(options, workers(2, "unused"));
  EXPECT_EQ(run.result.exit_code, 0);
  EXPECT_THAT(lines_of(run.output), Contains("[node 1] id=1 n=2 arg fd="));
}

TEST(RunnerTest, ARestartedCommandDoesNotAttachToOneThatHasEnded) {
  const TemporaryDirectory directory;
  RunnerOptions options;
  options.worker_lost = WorkerLost::kRestart;
  options.command = {"/bin/sh", "-c",
                     "test $DITASK_NODE_ID = 0 && exit 0; cd " + directory.path() +
                         "; until test -e ended; do sleep 0.01; done"
                         "; echo \"attach=[$DITASK_ATTACH_TO]\""
                         "; mkdir died 2>&- && kill -KILL $$; exit 0"};
  options.on_event = [&](const WorkerEvent& event) {
    const bool ended = event.kind == WorkerEvent::Kind::kEnded && event.node_id == 0;
    if (ended) std::ofstream(directory.path() + "/ended") << "node 0";
  };
  const Captured run = run_captured(options, workers(2, "unused"));
  EXPECT_EQ(run.result.exit_code, 0) << run.error;
  const auto lines = lines_of(run.output);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], HasSubstr("attach=[ipc://"));
  EXPECT_EQ(lines[1], "[node 1] attach=[]");
}

TEST(RunnerTest, AFailingCommandFailsTheRunWithItsCode) {
  RunnerOptions options;
  options.command = {"/bin/sh", "-c", "exit 9"};
  const Captured run = run_captured(options, workers(1, "unused"));
  EXPECT_EQ(run.result.exit_code, 9);
  EXPECT_EQ(run.result.status.message(), "node 0: ended with exit code 9");
}

TEST(RunnerTest, ACommandIsAskedToEndBeforeItIsKilled) {
  const TemporaryDirectory directory;
  RunnerOptions options;
  options.command = {"/bin/sh", "-c",
                     "cd " + directory.path() +
                         "; if test $DITASK_NODE_ID = 0"
                         "; then until test -e ready; do sleep 0.01; done; exit 9; fi"
                         "; trap 'echo cleaned; exit 0' TERM; echo > ready"
                         "; while :; do sleep 0.01; done"};
  const Captured run = run_captured(options, workers(2, "unused"));
  EXPECT_EQ(run.result.status.message(), "node 0: ended with exit code 9");
  EXPECT_THAT(lines_of(run.output), Contains("[node 1] cleaned"));
}

TEST(RunnerTest, AMissingCommandIsAUsageError) {
  RunnerOptions options;
  options.command = {"/no/such/command"};
  const Captured run = run_captured(options, workers(2, "unused"));
  EXPECT_EQ(run.result.exit_code, 2);
  EXPECT_THAT(run.result.status.message(), HasSubstr("/no/such/command"));
}

TEST(RunnerTest, AStopDescriptorEndsTheRunWithSuccess) {
  auto pipe = io::make_pipe();
  RunnerOptions options;
  options.grace = 10ms;
  options.stop_fd = pipe->read.get();
  options.on_event = [&](const WorkerEvent& event) {
    if (event.kind == WorkerEvent::Kind::kJoined) pipe->write.reset();
  };
  const Captured run = run_captured(options, workers(2, "waits_for_ever"));
  EXPECT_EQ(run.result.exit_code, 0) << run.result.status.message();
}

volatile sig_atomic_t user_handler_calls = 0;

TEST(RunnerTest, AHandlerOfTheSurroundingProgramIsCalledAndStays) {
  struct sigaction ours{};
  user_handler_calls = 0;
  ours.sa_handler = [](int) { user_handler_calls = user_handler_calls + 1; };
  struct sigaction previous{};
  ::sigaction(SIGINT, &ours, &previous);
  RunnerOptions options;
  options.grace = 10ms;
  options.on_event = [&](const WorkerEvent& event) {
    if (event.kind == WorkerEvent::Kind::kJoined) ::raise(SIGINT);
  };
  const Captured run = run_captured(options, workers(1, "waits_for_ever"));
  struct sigaction after{};
  ::sigaction(SIGINT, &previous, &after);
  EXPECT_EQ(run.result.exit_code, 130);
  EXPECT_EQ(run.result.status.code(), Code::kCancelled);
  EXPECT_EQ(user_handler_calls, 1);
  EXPECT_EQ(after.sa_handler, ours.sa_handler);
}

TEST(RunnerTest, SignalsHaveTheirDefaultsAgainAfterwards) {
  run_captured({}, workers(1, "says_its_name"));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    ::sigaction(signal, nullptr, &action);
    EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
  }
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGPIPE), 0);
}

TEST(RunnerTest, NoDescriptorIsLeftOpen) {
  run_captured({}, workers(2, "says_its_name"));  // opens what stays open on purpose
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = count();
  run_captured({}, workers(2, "says_its_name"));
  EXPECT_EQ(count(), before);
}

// A launcher as a process of its own; its lines can be waited for.
class Launcher {
 public:
  explicit Launcher(const std::vector<std::string>& arguments) : process_(spawn(arguments)) {}

  // The pids that `n` workers print with "up".
  // Their pids, by node.
  std::vector<int> wait_until_up(int n) {
    std::map<int, int> pid_of;
    while (static_cast<int>(pid_of.size()) < n) {
      const std::string line = next_line();
      if (line.empty()) break;
      const std::size_t up = line.find("] up ");
      const std::size_t node = line.find("[node ");
      if (up == std::string::npos || node == std::string::npos) continue;
      pid_of[std::stoi(line.substr(node + 6))] = std::stoi(line.substr(up + 5));
    }
    EXPECT_THAT(pid_of, SizeIs(n));
    std::vector<int> pids;
    for (const auto& [node, pid] : pid_of) pids.push_back(pid);
    return pids;
  }

  void signal(int number) { EXPECT_TRUE(process_.kill(number).ok()); }

  void close_output() { process_.output().reset(); }

  // Exit code, or 128 + signal.
  int wait() {
    if (process_.output()) output_ += io::read_all(process_.output().get()).value();
    error_ = io::read_all(process_.error().get()).value();
    const io::ExitStatus status = process_.wait().value();
    return status.signal != 0 ? 128 + status.signal : status.code;
  }

  const std::string& output() const { return output_; }
  const std::string& error() const { return error_; }
  std::vector<std::string> socket_files() const { return directory_.files(); }

 private:
  std::string next_line() {
    std::string line;
    char byte = 0;
    pollfd poll_fd{process_.output().get(), POLLIN, 0};
    while (::poll(&poll_fd, 1, kDeadline) == 1 && ::read(poll_fd.fd, &byte, 1) == 1) {
      output_ += byte;
      if (byte == '\n') return line;
      line += byte;
    }
    return line;
  }

  io::Process spawn(const std::vector<std::string>& arguments) const {
    const std::string program = io::current_program();
    io::SpawnOptions options;
    options.program = program.substr(0, program.rfind('/')) + "/runner_test_launcher";
    options.arguments = {"--ipc-dir=" + directory_.path()};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.standard_output = io::Stdio::kPipe;
    options.standard_error = io::Stdio::kPipe;
    return io::Process::spawn(options).value();
  }

  TemporaryDirectory directory_;
  io::Process process_;
  std::string output_;
  std::string error_;
};

// Opened while the process lives, so that a reused number cannot deceive.
std::vector<io::Descriptor> watch(const std::vector<int>& pids) {
  std::vector<io::Descriptor> pidfds;
  for (const int pid : pids) {
    pidfds.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    EXPECT_TRUE(pidfds.back());
  }
  return pidfds;
}

void expect_all_end(const std::vector<io::Descriptor>& pidfds) {
  for (const auto& pidfd : pidfds) {
    pollfd poll_fd{pidfd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&poll_fd, 1, kDeadline), 1);
  }
}

TEST(LauncherTest, WorkersDieWithALauncherThatIsKilled) {
  Launcher launcher({"deaf", "3"});
  const auto pidfds = watch(launcher.wait_until_up(3));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  expect_all_end(pidfds);
}

TEST(LauncherTest, InterruptLetsWorkersFinishAndLeavesNothing) {
  Launcher launcher({"patient", "3"});
  const auto pidfds = watch(launcher.wait_until_up(3));
  EXPECT_THAT(launcher.socket_files(), SizeIs(3));
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(), 130);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("[node 0] finished"), HasSubstr("[node 2] finished")));
  expect_all_end(pidfds);
  EXPECT_THAT(launcher.socket_files(), IsEmpty());
}

TEST(LauncherTest, TerminateIsGracefulToo) {
  Launcher launcher({"patient", "2"});
  launcher.wait_until_up(2);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143);
  EXPECT_THAT(launcher.output(), HasSubstr("[node 1] finished"));
  EXPECT_THAT(launcher.socket_files(), IsEmpty());
}

TEST(LauncherTest, ADeafWorkerIsKilledAfterTheGrace) {
  Launcher launcher({"--grace=50", "deaf", "2"});
  const auto pidfds = watch(launcher.wait_until_up(2));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143);
  expect_all_end(pidfds);
  EXPECT_THAT(launcher.socket_files(), IsEmpty());
}

TEST(LauncherTest, ASecondInterruptKillsAtOnce) {
  Launcher launcher({"--grace=3600000", "deaf", "2"});
  const auto pidfds = watch(launcher.wait_until_up(2));
  launcher.signal(SIGINT);
  launcher.signal(SIGINT);
  // Two signals that come together are one: the second is repeated until it was heard.
  pollfd poll_fd{pidfds[0].get(), POLLIN, 0};
  for (int i = 0; i < 600 && ::poll(&poll_fd, 1, 100) == 0; ++i) launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(), 130);
  expect_all_end(pidfds);
}

TEST(LauncherTest, A068AKilledWorkerEndsTheRunWithItsNodeAndSignal) {
  Launcher launcher({"patient", "3"});
  const auto pids = launcher.wait_until_up(3);
  const auto pidfds = watch(pids);
  ::kill(pids[1], SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_THAT(launcher.error(), HasSubstr("launcher: node 1: was killed by SIGKILL"));
  expect_all_end(pidfds);
  EXPECT_THAT(launcher.socket_files(), IsEmpty());
}

TEST(LauncherTest, A068AKilledWorkerEndsTheRunAlsoOfDeafOnes) {
  Launcher launcher({"deaf", "3"});
  const auto pids = launcher.wait_until_up(3);
  const auto pidfds = watch(pids);
  const auto began = std::chrono::steady_clock::now();
  ::kill(pids[2], SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);  // ten times what is promised
  EXPECT_THAT(launcher.error(), HasSubstr("launcher: node 2: was killed by SIGKILL"));
  expect_all_end(pidfds);
  EXPECT_THAT(launcher.socket_files(), IsEmpty());
}

TEST(LauncherTest, TheFirstLostWorkerDecidesTheExitCode) {
  Launcher launcher({"one_dies", "2", "1", std::to_string(SIGUSR1)});
  EXPECT_EQ(launcher.wait(), 128 + SIGUSR1);
  EXPECT_THAT(launcher.error(), AllOf(HasSubstr("[node 1] last words"),
                                      HasSubstr("launcher: node 1: was killed by SIGUSR1")));
}

TEST(LauncherTest, AWorkerThatIsAskedToFinishEndsAsItShould) {
  Launcher launcher({"patient", "2"});
  for (const int pid : launcher.wait_until_up(2)) ::kill(pid, SIGTERM);
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(), HasSubstr("[node 1] finished"));
}

TEST(LauncherTest, IgnoreGoesOnWithoutALostWorker) {
  Launcher launcher({"--lost=ignore", "others_hear", "3", "1", std::to_string(SIGKILL)});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("[node 0] heard of 1"), HasSubstr("[node 2] heard of 1")));
  EXPECT_THAT(launcher.socket_files(), IsEmpty());
}

TEST(LauncherTest, IgnoreWithNobodyLeftIsAFailure) {
  Launcher launcher({"--lost=ignore", "one_dies", "1", "0", std::to_string(SIGKILL)});
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.error(), HasSubstr("every worker was lost"));
}

TEST(LauncherTest, RestartBringsALostWorkerBack) {
  Launcher launcher({"--lost=restart", "others_hear", "3", "1", std::to_string(SIGKILL)});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("[node 0] heard of 1"), HasSubstr("[node 1] came back, restart 1")));
}

TEST(LauncherTest, ARestartedWorkerHearsWhoEndsWhileItJoins) {
  Launcher launcher({"--lost=restart", "others_end_while_it_joins", "2"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.error();
  EXPECT_THAT(launcher.output(), ::testing::ContainsRegex("joined without ipc://.*_0\\.ipc"));
}

TEST(LauncherTest, WhenARestartedWorkerCannotJoinTheOthersHaveTheirGraceToFinish) {
  Launcher launcher({"--lost=restart", "--grace=60000", "cannot_come_back", "2"});
  EXPECT_EQ(launcher.wait(), 3);
  EXPECT_THAT(launcher.error(), HasSubstr("launcher: node 1: cannot listen on"));
  EXPECT_THAT(launcher.output(), HasSubstr("[node 0] finished"));
}

TEST(LauncherTest, RestartsAreBounded) {
  Launcher launcher({"--lost=restart", "one_dies", "2", "1", std::to_string(SIGKILL)});
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_THAT(launcher.error(), HasSubstr("was killed by SIGKILL (Killed), after 3 restarts"));
}

TEST(LauncherTest, WhatAWorkerLeavesRunningIsKilled) {
  Launcher launcher({"leaves_a_child", "1"});
  EXPECT_EQ(launcher.wait(), 0);
  const std::size_t at = launcher.output().find("child ");
  ASSERT_NE(at, std::string::npos);
  const int pid = std::stoi(launcher.output().substr(at + 6));
  const io::Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd poll_fd{pidfd.get(), POLLIN, 0};
  EXPECT_TRUE(!pidfd || ::poll(&poll_fd, 1, kDeadline) == 1);  // reaped already, or just dead
}

TEST(LauncherTest, AReaderThatGoesAwayDoesNotEndTheRun) {
  Launcher launcher({"patient", "2"});
  launcher.wait_until_up(2);
  launcher.close_output();
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143);
  EXPECT_THAT(launcher.socket_files(), IsEmpty());
}

}  // namespace
}  // namespace divisi::runtime
