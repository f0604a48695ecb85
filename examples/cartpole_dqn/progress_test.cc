#include "progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

namespace cartpole {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kProgress =
    R"({"kind":"progress","seconds":2.5,"env_step":12345,"train_iter":678,)"
    R"("env_steps_per_second":1000.4,"updates_per_second":99.6,"loss":0.25,"mean_q":7.5,"eps":0.5,)"
    R"("version":670,"nodes":[{"node":0,"role":"replay","up":true},)"
    R"({"node":1,"role":"learner","up":false}]})";
constexpr const char* kEval =
    R"({"kind":"eval","seconds":3,"env_step":13000,"train_iter":700,"mean":42.5,)"
    R"("of_train_iter":690})";

TEST(ProgressTest, Takes_the_lines_of_a_log) {
  Progress progress;
  EXPECT_TRUE(progress.take(kProgress));
  EXPECT_EQ(progress.seconds, 2.5);
  EXPECT_EQ(progress.env_step, 12'345);
  EXPECT_EQ(progress.train_iter, 678);
  EXPECT_EQ(progress.loss, 0.25);
  EXPECT_EQ(progress.version, 670);
  ASSERT_EQ(progress.nodes.size(), 2U);
  EXPECT_EQ(progress.nodes[1].role, "learner");
  EXPECT_FALSE(progress.nodes[1].up);
  EXPECT_TRUE(progress.take(kEval));
  ASSERT_EQ(progress.evaluations.size(), 1U);
  EXPECT_EQ(progress.evaluations[0].mean, 42.5);
  EXPECT_EQ(progress.evaluations[0].env_step, 13'000);
  EXPECT_EQ(progress.loss, 0.25);  // stays
  EXPECT_FALSE(progress.solved);
  EXPECT_TRUE(progress.take(R"({"kind":"solved","seconds":4})"));
  EXPECT_TRUE(progress.solved);
}

TEST(ProgressTest, A_line_that_is_still_being_written_changes_nothing) {
  const std::string line = kProgress;
  for (std::size_t size = 0; size < line.size(); ++size) {
    Progress progress;
    EXPECT_FALSE(progress.take(line.substr(0, size))) << size;
    EXPECT_EQ(progress.env_step, 0);
  }
  EXPECT_FALSE(Progress().take("[1, 2]"));
}

TEST(ProgressTest, A_plain_line_has_it_all) {
  Progress progress;
  EXPECT_THAT(plain_line(progress), HasSubstr("0 of 0 nodes up"));
  progress.take(kProgress);
  EXPECT_THAT(plain_line(progress),
              AllOf(HasSubstr("2.5 s"), HasSubstr("12,345"), HasSubstr("1,000/s"), HasSubstr("678"),
                    HasSubstr("return      -"), HasSubstr("v670"), HasSubstr("1 of 2 nodes up")));
  progress.take(kEval);
  EXPECT_THAT(plain_line(progress), AllOf(HasSubstr("return   42.5"), Not(HasSubstr("\n"))));
}

TEST(ProgressTest, A_screen_keeps_its_size_and_has_colours_only_if_asked) {
  Progress progress;
  progress.take(kProgress);
  for (int i = 0; i < 50; ++i) progress.take(kEval);
  for (const Screen& screen :
       {Screen{80, 24, false}, Screen{20, 5, false}, Screen{300, 100, false}}) {
    const std::string picture = draw(progress, "title", 195, 0, screen);
    EXPECT_THAT(picture, AllOf(HasSubstr("title"), HasSubstr("42.5"), HasSubstr("learner 1"),
                               Not(HasSubstr("\x1b"))));
    if (screen.rows == 24) {
      EXPECT_LE(std::ranges::count(picture, '\n'), 23);
    }
  }
  EXPECT_THAT(draw(progress, "title", 195, 0, {}), HasSubstr("\x1b[32m"));
  EXPECT_THAT(draw(progress, "title", 195, 9, {}), HasSubstr("no news from the learner for 9 s"));
  draw(Progress(), "", 0, 0, {});
}

// Every element that is opened is closed, in order; attributes have quotes.
bool well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = svg.find('<', at)) != std::string::npos;) {
    const std::size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    at = end;
    if (tag.find('<') != std::string::npos || std::ranges::count(tag, '"') % 2 != 0) return false;
    std::string name;
    std::istringstream(tag) >> name;
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
    } else if (!tag.ends_with('/') && !tag.starts_with('?') && !tag.starts_with('!')) {
      open.push_back(name);
    }
  }
  return open.empty() && svg.starts_with("<svg ") && svg.find("nan") == std::string::npos &&
         svg.find("inf") == std::string::npos;
}

TEST(ProgressTest, The_curve_is_an_svg_document) {
  std::vector<Evaluation> evaluations;
  EXPECT_TRUE(well_formed(curve_svg(evaluations, 195, "none")));
  for (int i = 0; i < 5; ++i) evaluations.push_back({0, 1000 * i, i, 10.0 * i});
  const std::string svg = curve_svg(evaluations, 195, "some title");
  EXPECT_TRUE(well_formed(svg)) << svg;
  EXPECT_THAT(svg, AllOf(HasSubstr("some title"), HasSubstr("polyline")));
  EXPECT_TRUE(well_formed(curve_svg({{0, 0, 0, 0}}, 0, "one point")));
}

TEST(ProgressTest, Numbers_have_commas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1'234'567), "1,234,567");
  EXPECT_EQ(with_commas(-999), "-999");
  EXPECT_EQ(with_commas(-1000), "-1,000");
  EXPECT_EQ(with_commas(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

}  // namespace
}  // namespace cartpole
