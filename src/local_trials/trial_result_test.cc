#include "local_trials/trial_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::local_trials {
namespace {

using testing::HasSubstr;

class TrialResultTest : public testing::Test {
 protected:
  TrialResultTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "result-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    places_ = {.result_file = folder_ + "/given.json", .folders = {folder_}};
  }
  ~TrialResultTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  std::string text() {
    const auto result = read_trial_result(places_);
    if (result) place_ = result->place;
    return result ? json::print(result->value) : "error: " + result.error().message();
  }

  std::string folder_;
  ResultPlaces places_;
  std::string place_;  // of the last result
};

TEST_F(TrialResultTest, LineIsANumberOrAnObject) {
  EXPECT_EQ(json::print(result_of_line("  -12 ")), "-12");
  EXPECT_EQ(json::print(result_of_line("1e-3")), "0.001");
  EXPECT_EQ(json::print(result_of_line("+2.5\r")), "2.5");
  EXPECT_EQ(json::print(result_of_line("{\"a\": 1}")), "{\"a\":1}");
  EXPECT_EQ(json::print(result_of_line("nan")), "{\"$float\":\"nan\"}");
  EXPECT_EQ(json::print(result_of_line("-inf")), "{\"$float\":\"-inf\"}");
  for (const char* other : {"", "  ", "done", "1 2", "[1]", "{broken", "1.5x", "true"}) {
    EXPECT_TRUE(result_of_line(other).is_null()) << other;
  }
}

TEST_F(TrialResultTest, GivenFileComesBeforeTheLineAndTheLineBeforeOthers) {
  write("result.json", "3");
  EXPECT_EQ(text(), "3");
  EXPECT_EQ(place_, "the file " + folder_ + "/result.json");
  places_.last_line = "2";
  EXPECT_EQ(text(), "2");
  EXPECT_EQ(place_, "the last line of its output");
  write("given.json", "{\"reward\": 1}");
  EXPECT_EQ(text(), "{\"reward\":1}");
  EXPECT_EQ(place_, "the file " + places_.result_file);
}

TEST_F(TrialResultTest, PickleIsReadAsData) {
  write("result.pkl",
        "\x80\x04}\x8c\x01"
        "a"
        "K\x05s.");
  EXPECT_EQ(text(), "{\"a\":5}");
}

TEST_F(TrialResultTest, H100PickleThatCallsIsRefusedByName) {
  write("result.pkl", "cos\nsystem\n(S'touch " + folder_ + "/hacked'\ntR.");
  EXPECT_THAT(text(), HasSubstr("os.system"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/hacked"));
}

TEST_F(TrialResultTest, TruncatedFilesSayWhere) {
  write("given.json", "{\"reward\": 1");
  EXPECT_THAT(text(), testing::AllOf(HasSubstr("given.json is no JSON"), HasSubstr("line 1")));
  std::filesystem::remove(folder_ + "/given.json");
  write("result.pkl", "\x80\x04}\x8c\x01");
  EXPECT_THAT(text(), HasSubstr("result.pkl"));
}

TEST_F(TrialResultTest, H088FileOlderThanTheTrialIsStale) {
  write("result.json", "3");
  struct stat info{};
  ASSERT_EQ(::stat((folder_ + "/result.json").c_str(), &info), 0);
  places_.started = info.st_mtim;
  EXPECT_EQ(text(), "3");
  places_.started.tv_sec += 1;
  EXPECT_THAT(text(), HasSubstr("older than the trial"));
}

TEST_F(TrialResultTest, LinksAndPipesAreRefusedWithoutWaiting) {
  ASSERT_EQ(::symlink("/etc/hostname", (folder_ + "/given.json").c_str()), 0);
  EXPECT_THAT(text(), HasSubstr("is a link"));
  std::filesystem::remove(folder_ + "/given.json");
  ASSERT_EQ(::mkfifo((folder_ + "/given.json").c_str(), 0600), 0);
  EXPECT_THAT(text(), HasSubstr("is not a file"));
}

TEST_F(TrialResultTest, NothingThereSaysWhatWasLookedFor) {
  EXPECT_THAT(text(), HasSubstr("no result: the program wrote no $HPO_RESULT_FILE"));
  write("given.json", " \n");
  EXPECT_THAT(text(), HasSubstr("is empty"));
}

}  // namespace
}  // namespace divisi::local_trials
