#include "io/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace divisi::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

SpawnOptions shell(const std::string& script) {
  SpawnOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  options.standard_output = Stdio::kPipe;
  options.standard_error = Stdio::kPipe;
  return options;
}

struct Finished {
  ExitStatus status;
  std::string output;
  std::string error;
};

Finished run(const SpawnOptions& options) {
  auto child = Process::spawn(options);
  EXPECT_TRUE(child.has_value()) << child.error().message();
  Finished finished;
  finished.output = read_all(child->output().get()).value();
  finished.error = read_all(child->error().get()).value();
  finished.status = child->wait().value();
  return finished;
}

bool becomes_readable(int fd, int milliseconds) {
  pollfd poll_fd{fd, POLLIN, 0};
  return ::poll(&poll_fd, 1, milliseconds) == 1;
}

TEST(ProcessTest, ReturnsOutputErrorAndExitCode) {
  const Finished finished = run(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(finished.output, "out\n");
  EXPECT_EQ(finished.error, "err\n");
  EXPECT_EQ(finished.status.code, 7);
  EXPECT_EQ(finished.status.signal, 0);
  EXPECT_FALSE(finished.status.ok());
}

TEST(ProcessTest, TellsTheSignalThatKilledTheChild) {
  auto child = Process::spawn(shell("kill -SEGV $$"));
  ASSERT_TRUE(child.has_value());
  const auto status = child->wait();
  EXPECT_EQ(status->signal, SIGSEGV);
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV (Segmentation fault)");
}

TEST(ProcessTest, AMissingProgramIsAnErrorWithItsName) {
  const auto child = Process::spawn({.program = "/no/such/program"});
  ASSERT_FALSE(child.has_value());
  EXPECT_EQ(child.error().code(), Code::kNotFound);
  EXPECT_THAT(child.error().message(), HasSubstr("/no/such/program"));
  EXPECT_THAT(child.error().message(), HasSubstr("No such file"));
}

TEST(ProcessTest, ADirectoryCannotBeStarted) {
  const auto child = Process::spawn({.program = "/"});
  ASSERT_FALSE(child.has_value());
  EXPECT_EQ(child.error().code(), Code::kUnavailable);
}

TEST(ProcessTest, FindsProgramsInThePath) {
  auto options = shell("");
  options.program = "sh";
  options.arguments = {"-c", "echo found"};
  EXPECT_EQ(run(options).output, "found\n");
}

TEST(ProcessTest, AddsChangesAndRemovesVariables) {
  ::setenv("PROCESS_TEST_GONE", "1", 1);
  ::setenv("PROCESS_TEST_CHANGED", "old", 1);
  auto options = shell("echo ${PROCESS_TEST_GONE-gone}-$PROCESS_TEST_CHANGED-$PROCESS_TEST_NEW");
  options.environment = {{"PROCESS_TEST_GONE", std::nullopt},
                         {"PROCESS_TEST_CHANGED", "changed"},
                         {"PROCESS_TEST_NEW", "new"}};
  EXPECT_EQ(run(options).output, "gone-changed-new\n") << "not there, not even empty";
}

TEST(ProcessTest, OnlyChosenDescriptorsReachTheChild) {
  // Without O_CLOEXEC, as some libraries do; a number that the child's own files do not reach.
  const int forgotten = ::fcntl(2, F_DUPFD, 100);
  auto file = make_memory_file("test", "handed over");
  ASSERT_TRUE(file.has_value());
  auto options = shell(fmt::format("cat <&{}; ls /proc/self/fd", file->get()));
  options.inherited = {file->get()};
  const std::string output = run(options).output;
  ::close(forgotten);
  EXPECT_THAT(output, HasSubstr("handed over"));
  EXPECT_THAT(output, HasSubstr(fmt::format("\n{}\n", file->get())));
  EXPECT_THAT(output, Not(HasSubstr(fmt::format("\n{}\n", forgotten))));
}

TEST(ProcessTest, WorksWhenTheParentHasNoStandardInput) {
  // The ends of a new pipe then have the numbers 0 to 2 themselves and must not overwrite each
  // other in the child.
  const Descriptor saved(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  ::close(0);
  const Finished finished = run(shell("echo out; echo err >&2"));
  ASSERT_EQ(::dup2(saved.get(), 0), 0);
  EXPECT_EQ(finished.output, "out\n");
  EXPECT_EQ(finished.error, "err\n");
}

TEST(ProcessTest, PidfdBecomesReadableAtTheEndAndNotBefore) {
  auto options = shell("read line; exit 0");
  options.standard_input = Stdio::kPipe;
  auto child = Process::spawn(options);
  ASSERT_TRUE(child.has_value());
  EXPECT_FALSE(becomes_readable(child->pidfd(), 0));
  EXPECT_FALSE(child->try_wait().has_value());
  ASSERT_EQ(::write(child->input().get(), "go\n", 3), 3);
  ASSERT_TRUE(becomes_readable(child->pidfd(), 20'000));
  ASSERT_TRUE(child->try_wait().has_value());
  EXPECT_TRUE(child->reaped());
  EXPECT_EQ(child->kill(SIGTERM).code(), Code::kNotFound);
}

TEST(ProcessTest, KillsByDescriptor) {
  auto child = Process::spawn(shell("exec sleep 600"));
  ASSERT_TRUE(child.has_value());
  EXPECT_TRUE(child->kill(SIGTERM).ok());
  EXPECT_EQ(child->wait()->signal, SIGTERM);
}

TEST(ProcessTest, AGroupDiesWithItsGrandchildren) {
  auto options = shell("sleep 600 & echo $!; wait");
  options.new_process_group = true;
  auto child = Process::spawn(options);
  ASSERT_TRUE(child.has_value());
  std::string line(32, '\0');
  const ssize_t size = ::read(child->output().get(), line.data(), line.size());
  ASSERT_GT(size, 0);
  child->kill_group(SIGKILL);
  // The sleeping grandchild holds the other end of this pipe; its end is ours.
  EXPECT_TRUE(read_all(child->output().get()).has_value());
  EXPECT_EQ(child->wait()->signal, SIGKILL);
}

TEST(ProcessTest, TheDestructorLeavesNothingBehind) {
  pid_t pid = -1;
  {
    auto child = Process::spawn(shell("exec sleep 600"));
    ASSERT_TRUE(child.has_value());
    pid = child->pid();
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ProcessTest, AChildDiesWithTheThreadThatStartedIt) {
  auto options = shell("exec sleep 600");
  options.die_with_parent = true;
  std::optional<Process> child;
  std::thread([&] { child.emplace(Process::spawn(options).value()); }).join();
  ASSERT_TRUE(becomes_readable(child->pidfd(), 20'000));
  EXPECT_EQ(child->wait()->signal, SIGKILL);
}

TEST(ProcessTest, HandlersAndMaskOfTheParentDoNotReachTheChild) {
  struct sigaction ours{};
  ours.sa_handler = [](int) {};
  struct sigaction previous{};
  ::sigaction(SIGUSR1, &ours, &previous);
  auto child = Process::spawn(shell("kill -USR1 $$; exit 0"));
  ::sigaction(SIGUSR1, &previous, nullptr);
  ASSERT_TRUE(child.has_value());
  EXPECT_EQ(child->wait()->signal, SIGUSR1);
}

TEST(ProcessTest, AStatusTakenBySomebodyElseIsReportedAsUnknown) {
  auto child = Process::spawn(shell("exit 4"));
  ASSERT_TRUE(child.has_value());
  ASSERT_TRUE(becomes_readable(child->pidfd(), 20'000));
  ASSERT_EQ(::waitpid(child->pid(), nullptr, 0), child->pid());
  EXPECT_TRUE(child->wait()->unknown);
}

TEST(ProcessTest, KnowsTheRunningProgram) {
  EXPECT_THAT(current_program(), HasSubstr("io_process_test"));
}

}  // namespace
}  // namespace divisi::io
