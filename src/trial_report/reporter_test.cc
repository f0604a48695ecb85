#include "trial_report/reporter.h"

#include "base/testing/temp_folder.h"
#include "http/base64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <vector>

namespace divisi::trial_report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReporterTest : public ::testing::Test {
 protected:
  TrialPlace place() const {
    return {.task = "cartpole-3",
            .project = "cartpole",
            .result_file = folder_ / "cartpole-3-result.json",
            .metrics_file = folder_ / "cartpole-3-metrics.jsonl"};
  }
  void start() {
    files_.emplace(place());
    reporter_.emplace(
        *files_, [this](const std::string& body) { return answer(body); },
        [this](const std::string& line) { lines_.push_back(line); });
  }
  Result<http::Response> answer(const std::string& body) {
    ++posts_;
    if (away_) return failure(Code::kUnavailable, "connection refused");
    if (refuses_reports_ && body.find("\"reports\"") != std::string::npos) {
      return http::Response{400, {}, R"({"message": "no"})"};
    }
    if (status_ == 200) bodies_.push_back(body);
    return http::Response{status_, {}, R"({"message": "no"})"};
  }
  void append(const std::string& text) const {
    std::ofstream(place().metrics_file, std::ios::app | std::ios::binary) << text;
  }
  static std::string report(int step, double value) {
    return fmt::format("{{\"step\": {}, \"values\": {{\"loss\": {}}}}}\n", step, value);
  }
  static std::string posted(const std::string& name, const std::string& bytes) {
    return fmt::format(R"({{"result":{{"name":"{}","bytes":"{}"}}}})", name,
                       http::encode_base64(bytes));
  }

  const divisi::testing::TempFolder folder_;
  std::optional<TrialFiles> files_;
  std::optional<Reporter> reporter_;
  bool away_ = false;
  bool refuses_reports_ = false;
  int status_ = 200;
  int posts_ = 0;
  std::vector<std::string> bodies_;
  std::vector<std::string> lines_;
};

TEST_F(ReporterTest, NewLinesArePostedOnce) {
  append(report(0, 9));  // of an earlier run
  start();
  append(report(1, 0.5) + R"({"step": 2, "val)");
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  append(R"(ues": {"loss": NaN, "text\" NaN": Infinity}})"
         "\n");
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, ElementsAre(R"({"reports":{"1":{"loss":0.5}}})",
                                   R"({"reports":{"2":{"loss":null,"text\" NaN":null}}})"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ReporterTest, BadAndOverlongLinesAreLeftOutWithALineEach) {
  start();
  append("nonsense\n[]\n" + std::string(TrialFiles::kMaxLine + 1, 'x') + "\n" + report(4, 1));
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, ElementsAre(R"({"reports":{"4":{"loss":1}}})"));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("is no {\"step\""), HasSubstr("more than 65536")));
}

TEST_F(ReporterTest, MetricsFileThatBeginsAnewIsReadFromItsBeginning) {
  append(report(0, 9) + report(1, 9));  // of an earlier run
  start();
  std::filesystem::resize_file(place().metrics_file, 0);
  append(report(2, 2) + R"({"step": 3, "val)");
  reporter_->look();
  std::filesystem::resize_file(place().metrics_file, 0);
  append(report(4, 4));
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, ElementsAre(R"({"reports":{"2":{"loss":2},"4":{"loss":4}}})"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ReporterTest, ReportsBehindAnEndlessLineAreSeenInTheSameLook) {
  start();
  append(std::string(std::size_t{3} << 20, 'x') + "\n" + report(4, 1));
  reporter_->look_at_the_end();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, ElementsAre(R"({"reports":{"4":{"loss":1}}})"));
}

TEST_F(ReporterTest, MetricsFileThatIsAPipeIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(place().metrics_file.c_str(), 0600), 0);
  start();
  reporter_->look_at_the_end();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, IsEmpty());
}

TEST_F(ReporterTest, ResultIsPostedWhenItNoLongerChanges) {
  folder_.write("cartpole-3/result.pkl", "old");
  start();
  reporter_->look();
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, IsEmpty()) << "it was there before the start";
  folder_.write("cartpole-3/result.pkl", "ne");
  reporter_->look();
  folder_.write("cartpole-3/result.pkl", "new");
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, IsEmpty());
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, ElementsAre(posted("result.pkl", "new")));
  reporter_->look_at_the_end();
  EXPECT_TRUE(reporter_->send());
  EXPECT_EQ(bodies_.size(), 1u);
}

TEST_F(ReporterTest, ResultsLieWhereTheTunerLooks) {
  start();
  folder_.write("cartpole/cartpole-3_260101_120000/hpo/results", "dated");
  reporter_->look_at_the_end();
  EXPECT_TRUE(reporter_->send());
  folder_.write("cartpole-3-result.json", "{}");
  reporter_->look_at_the_end();
  EXPECT_TRUE(reporter_->send());
  EXPECT_THAT(bodies_, ElementsAre(posted("results", "dated"), posted("result.json", "{}")));
}

TEST_F(ReporterTest, NothingIsLostWhileTheServerIsAway) {
  start();
  away_ = true;
  append(report(1, 1));
  reporter_->look();
  EXPECT_FALSE(reporter_->send());
  append(report(2, 2));
  folder_.write("cartpole-3-result.json", "{}");
  reporter_->look_at_the_end();
  EXPECT_FALSE(reporter_->send());
  EXPECT_EQ(reporter_->unsent(), "2 reports and the result result.json not posted");
  status_ = 500;
  away_ = false;
  EXPECT_FALSE(reporter_->send());
  status_ = 200;
  EXPECT_TRUE(reporter_->send());
  EXPECT_EQ(reporter_->unsent(), "");
  ASSERT_EQ(bodies_.size(), 1u);
  EXPECT_THAT(bodies_[0], HasSubstr(R"({"reports":{"1":{"loss":1},"2":{"loss":2}},"result":)"));
  EXPECT_THAT(lines_,
              ElementsAre("di-server does not answer (connection refused); it is tried again",
                          "di-server answers 500; it is tried again"));
}

TEST_F(ReporterTest, ManyReportsGoInSeveralPosts) {
  start();
  std::string text;
  for (int step = 0; step < 1500; ++step) text += report(step, step);
  append(text);
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  EXPECT_EQ(bodies_.size(), 5u) << "the newest 1,000, 200 in a post";
  EXPECT_THAT(bodies_.front(), HasSubstr(R"({"reports":{"500":)"));
  EXPECT_THAT(bodies_.back(), HasSubstr(R"("1499":{"loss":1499})"));
}

TEST_F(ReporterTest, ResultThatIsTooLargeIsATrouble) {
  start();
  folder_.write("cartpole-3-result.json", std::string(kMaxPostedResult + 1, 'x'));
  reporter_->look_at_the_end();
  EXPECT_TRUE(reporter_->send());
  const std::string text =
      "the result result.json has 32769 bytes, and di-server keeps 32768: write less into it, or "
      "put the project path on a volume that outlives the pod";
  for (int i = 0; i < 3; ++i) {
    reporter_->look();
    EXPECT_TRUE(reporter_->send());
  }
  EXPECT_THAT(bodies_, ElementsAre(fmt::format(R"({{"trouble":"{}"}})", text)));
  EXPECT_THAT(lines_, ElementsAre(text));
}

TEST_F(ReporterTest, RefusedPostsAreDroppedAndTold) {
  start();
  append(report(1, 1));
  reporter_->look();
  status_ = 400;
  EXPECT_TRUE(reporter_->send());
  EXPECT_EQ(posts_, 1);
  EXPECT_EQ(reporter_->unsent(), "");
  EXPECT_THAT(lines_, ElementsAre("di-server refuses what is posted (400 no)"));
}

TEST_F(ReporterTest, ResultOutlivesReportsThatAreRefused) {
  start();
  refuses_reports_ = true;
  std::string text;
  for (int step = 0; step < 250; ++step) text += report(step, step);  // more than one post
  append(text);
  folder_.write("cartpole-3-result.json", "{}");
  reporter_->look_at_the_end();
  EXPECT_TRUE(reporter_->send());
  EXPECT_EQ(posts_, 3) << "reports with the result, the result, the other reports";
  EXPECT_THAT(bodies_, ElementsAre(posted("result.json", "{}")));
  EXPECT_EQ(reporter_->unsent(), "");
}

TEST_F(ReporterTest, FiguresBeyondTheBoundsAreLeftOut) {
  start();
  json::Value line;
  line["step"] = 1;
  for (std::size_t i = 0; i <= kMaxFigures; ++i) line["values"][fmt::format("f{}", i)] = 1;
  append(json::print(line) + "\n");
  append(R"({"step": 1, "values": {"f0": 2, "late": 2}})"
         "\n");
  const std::string longest(kMaxFigureName, 'n');
  append(fmt::format(R"({{"step": 2, "values": {{"{0}n": 1, "{0}": 2}}}})", longest) + "\n");
  append(fmt::format(R"({{"step": 3, "values": {{"{}n": 1}}}})", longest) + "\n");
  reporter_->look();
  EXPECT_TRUE(reporter_->send());
  ASSERT_EQ(bodies_.size(), 1u);
  const auto body = json::parse(bodies_[0]);
  const json::Value* const first = body->find_path({"reports", "1"});
  EXPECT_EQ(first->as_object()->size(), kMaxFigures);
  EXPECT_EQ(first->int_at({"f0"}), 2);
  EXPECT_EQ(first->find("f64"), nullptr);
  EXPECT_EQ(json::print(*body->find_path({"reports", "2"})), fmt::format(R"({{"{}":2}})", longest));
  EXPECT_EQ(body->find_path({"reports", "3"}), nullptr);
  EXPECT_THAT(lines_,
              ElementsAre(HasSubstr("more than 64 figures"), HasSubstr("more than 128 bytes")));
}

TEST_F(ReporterTest, WrongSecretIsGivenUpWithOneLine) {
  start();
  append(report(1, 1));
  reporter_->look();
  status_ = 401;
  EXPECT_FALSE(reporter_->send());
  EXPECT_FALSE(reporter_->send());
  EXPECT_TRUE(reporter_->send());
  EXPECT_TRUE(reporter_->send());
  EXPECT_EQ(posts_, 3);
  EXPECT_EQ(reporter_->unsent(), "1 report not posted");
  EXPECT_THAT(lines_, ElementsAre("di-server refuses what is posted (401 no)"));
}

}  // namespace
}  // namespace divisi::trial_report
