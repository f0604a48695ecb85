#include "divisi/trial.h"

#include "divisi/error.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace divisi::tune {
namespace {

class TrialTest : public testing::Test {
 protected:
  TrialTest() {
    std::string name = testing::TempDir() + "trialXXXXXX";
    folder_ = ::mkdtemp(name.data());
    ::setenv("HPO_METRICS_FILE", path("metrics").c_str(), 1);
    ::setenv("HPO_RESULT_FILE", path("result").c_str(), 1);
  }
  ~TrialTest() override {
    ::unsetenv("HPO_METRICS_FILE");
    ::unsetenv("HPO_RESULT_FILE");
    std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string content(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }

  std::string folder_;
};

TEST_F(TrialTest, ReportsAreLinesOfTheMetricsFile) {
  report(0, 0.5);
  report(7, {{"loss", std::numeric_limits<double>::quiet_NaN()}, {"reward", 3}});
  EXPECT_EQ(content("metrics"),
            "{\"step\":0,\"values\":{\"value\":0.5}}\n"
            "{\"step\":7,\"values\":{\"loss\":null,\"reward\":3}}\n");
}

TEST_F(TrialTest, TheResultReplacesAnEarlierOne) {
  set_result({{"reward", 1}});
  set_result({{"reward", 2.5}});
  EXPECT_EQ(content("result"), "{\"reward\":2.5}\n");
}

TEST_F(TrialTest, OutsideOfATrialNothingHappens) {
  ::unsetenv("HPO_METRICS_FILE");
  ::setenv("HPO_RESULT_FILE", "", 1);
  report(1, 2);
  set_result({{"reward", 1}});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TrialTest, WrongStepsAndFilesAreErrors) {
  EXPECT_THROW(report(-1, 2), UsageError);
  ::setenv("HPO_METRICS_FILE", path("absent/metrics").c_str(), 1);
  EXPECT_THROW(report(1, 2), Error);
  ::setenv("HPO_RESULT_FILE", path("absent/result").c_str(), 1);
  EXPECT_THROW(set_result({}), Error);
}

}  // namespace
}  // namespace divisi::tune
