#include "tune_run/command_template.h"

#include "tune_run/value_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::tune_run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Value kConfig = from_text(R"({"lr":0.001,"p":{"act":"a b","n":[1,2]},"on":true})");

TEST(CommandTemplateTest, PlaceholdersAreFilled) {
  EXPECT_THAT(
      fill_placeholders({"--lr={lr}", "{p.act}", "{p.n}", "{on}{lr}", "{{lr}}", "{ x }"}, kConfig),
      ElementsAre("--lr=0.001", "a b", "[1,2]", "true0.001", "{lr}", "{ x }"));
  EXPECT_THAT(fill_placeholders({R"({"a":{"b":1}})", "awk {print $1}", "{"}, kConfig),
              ElementsAre(R"({"a":{"b":1}})", "awk {print $1}", "{"));
}

TEST(CommandTemplateTest, UnfilledAndUnusedAreRefused) {
  const std::vector<std::string> variables{"lr", "p.act"};
  EXPECT_TRUE(check_placeholders({"{lr}", "{p.act}", "{on}"}, variables, kConfig).ok());
  EXPECT_TRUE(check_placeholders({"{lr}", "{p}"}, variables, kConfig).ok());
  EXPECT_THAT(check_placeholders({"{lr}", "{p.acr}"}, variables, kConfig).message(),
              HasSubstr("nothing fills the placeholder {p.acr}, did you mean 'p.act'?"));
  EXPECT_THAT(check_placeholders({"{lr}"}, variables, kConfig).message(),
              HasSubstr("no placeholder uses the variable 'p.act'"));
}

TEST(CommandTemplateTest, OtherWaysToHandOver) {
  EXPECT_THAT(as_arguments(kConfig),
              ElementsAre("--lr=0.001", "--p.act=a b", "--p.n=[1,2]", "--on=true"));
  const auto environment = as_environment(kConfig);
  EXPECT_EQ(environment.at("HPO_PARAM_p__act"), "a b");
  EXPECT_EQ(environment.size(), 4U);
  EXPECT_THAT(parse_inject("jsn").error().message(), HasSubstr("did you mean 'json'?"));
}

TEST(CommandTemplateTest, EnvironmentNamesAreThoseOfPython) {
  EXPECT_EQ(environment_name({"policy", "lr"}), "HPO_PARAM_policy__lr");
  EXPECT_EQ(environment_name({"policy_lr"}), "HPO_PARAM_policy_lr");
  EXPECT_EQ(environment_name({"a-b.c d", "0"}), "HPO_PARAM_a_b_c_d__0");
}

TEST(CommandTemplateTest, OneEnvironmentNameForTwoValuesIsRefused) {
  EXPECT_TRUE(check_environment(from_text(R"({"a":{"b":1},"a_b":2})")).ok());
  EXPECT_THAT(check_environment(from_text(R"({"a":{"b":1},"a__b":2})")).message(),
              HasSubstr("'a.b' and 'a__b' would both be HPO_PARAM_a__b"));
}

TEST(CommandTemplateTest, WordsOfAShell) {
  EXPECT_THAT(*split_words(R"(a 'b c'  "d \"e" f\ g)"), ElementsAre("a", "b c", "d \"e", "f g"));
  EXPECT_THAT(split_words("a 'b").error().message(), HasSubstr("not closed"));
  EXPECT_EQ(shell_line({"sh", "-c", "echo 'x'", ""}), R"(sh -c 'echo '\''x'\''' '')");
}

}  // namespace
}  // namespace divisi::tune_run
