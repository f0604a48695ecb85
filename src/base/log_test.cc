#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <fstream>
#include <regex>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace divisi::log {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    set_level(Level::kInfo);
    set_json(false);
  }

  template <class Action>
  static std::string stderr_of(Action action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  }
};

struct Formatted {
  int* count;
};

}  // namespace
}  // namespace divisi::log

template <>
struct fmt::formatter<divisi::log::Formatted> : fmt::formatter<int> {
  auto format(const divisi::log::Formatted& value, fmt::format_context& context) const {
    if (value.count == nullptr) throw std::runtime_error("this value cannot be formatted");
    return fmt::formatter<int>::format(++*value.count, context);
  }
};

namespace divisi::log {
namespace {

TEST_F(LogTest, WritesTimeLevelAndMessageOnOneLine) {
  const std::string line = stderr_of([] { info("linked to={} n={}", "tcp://127.0.0.1:1", 2); });
  EXPECT_TRUE(std::regex_match(line, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info )"
                                                R"(.*linked to=tcp://127\.0\.0\.1:1 n=2\n)")))
      << line;
}

TEST_F(LogTest, CarriesTheIdentityOnceItIsSet) {
  set_identity("train-7", 3);
  EXPECT_THAT(stderr_of([] { warning("slow"); }), HasSubstr(" warning job=train-7 node=3 slow\n"));
}

TEST_F(LogTest, DropsLinesBelowTheLevelWithoutFormattingThem) {
  int formatted = 0;
  set_level(Level::kWarning);
  const std::string lines = stderr_of([&] {
    debug("{}", Formatted{&formatted});
    info("{}", Formatted{&formatted});
    warning("kept {}", Formatted{&formatted});
    error("kept {}", Formatted{&formatted});
  });
  EXPECT_EQ(formatted, 2);
  EXPECT_THAT(lines, HasSubstr("warning"));
  EXPECT_THAT(lines, HasSubstr("error"));
  set_level(Level::kOff);
  EXPECT_EQ(stderr_of([] { error("never"); }), "");
}

TEST_F(LogTest, KeepsAnEventOnOneLineAndTheTerminalSafe) {
  const std::string line = stderr_of([] {
    info(
        "a\nb\033[2Jc\xFF"
        "d é");
  });
  EXPECT_THAT(line, HasSubstr("a\\nb\\x1b[2Jc\xEF\xBF\xBD"
                              "d é\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST_F(LogTest, WritesJsonOnRequest) {
  set_identity("say \"hi\"", 0);
  set_json(true);
  const std::string line = stderr_of([] { error("path C:\\x\ty\xC3 {}", "ü"); });
  EXPECT_TRUE(std::regex_match(
      line, std::regex(R"(\{"time":"[^"]*Z","level":"error","job":"say \\"hi\\"","node":0,)"
                       R"("message":"path C:\\\\x\\u0009y\\ufffd ü"\}\n)")))
      << line;
}

TEST_F(LogTest, UsesNoColourAwayFromATerminal) {
  EXPECT_THAT(stderr_of([] { error("plain"); }), Not(HasSubstr("\033")));
}

TEST_F(LogTest, SurvivesAValueThatCannotBeFormatted) {
  EXPECT_THAT(stderr_of([] { error("{}", Formatted{nullptr}); }),
              HasSubstr("this value cannot be formatted"));
}

// Several threads of two processes share one stderr: each line must arrive whole.
TEST_F(LogTest, NeverMixesTheLinesOfThreadsAndProcesses) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  const std::string output = stderr_of([] {
    const auto write_lines = [] {
      std::vector<std::jthread> threads;
      for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([thread] {
          for (int i = 0; i < kLines; ++i)
            info("[{}]", std::string(200, static_cast<char>('a' + thread)));
        });
      }
    };
    info("[first]");  // the log exists before the fork, so that both processes share its state
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    write_lines();
    if (child == 0) _exit(0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
  });
  const std::regex whole(R"(.*\[(first|a{200}|b{200}|c{200}|d{200})\])");
  std::istringstream lines(output);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_TRUE(std::regex_match(line, whole)) << line;
  }
  EXPECT_EQ(count, 1 + 2 * kThreads * kLines);
}

TEST_F(LogTest, ReadsLevelsInAnyCaseAndNamesTheChoicesOtherwise) {
  EXPECT_EQ(parse_level("debug"), Level::kDebug);
  EXPECT_EQ(parse_level("INFO"), Level::kInfo);
  EXPECT_EQ(parse_level("warn"), Level::kWarning);
  EXPECT_EQ(parse_level("Warning"), Level::kWarning);
  EXPECT_EQ(parse_level("error"), Level::kError);
  EXPECT_EQ(parse_level("off"), Level::kOff);
  const auto wrong = parse_level("loud");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), Code::kInvalid);
  EXPECT_THAT(wrong.error().message(), HasSubstr("'loud'"));
  EXPECT_THAT(wrong.error().message(), HasSubstr("warning"));
}

}  // namespace
}  // namespace divisi::log
