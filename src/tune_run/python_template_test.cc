#include "tune_run/python_template.h"

#include "tune_run/value_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace divisi::tune_run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTemplate =
    "import sys\nmain_config = dict(policy=dict(lr=1, eps=[1, 2]))\nif __name__ == \"__main__\":\n "
    "   pass";

TEST(PythonTemplateTest, H074OverridesStandBeforeTheGuard) {
  EXPECT_EQ(*fill_python_template(kTemplate, from_text(R"({"policy":{"lr":0.5},"n":2})"), "t-0"),
            "import sys\nmain_config = dict(policy=dict(lr=1, eps=[1, 2]))\n"
            "main_config[\"policy\"][\"lr\"] = 0.5\nmain_config[\"n\"] = 2\n"
            "main_config[\"exp_name\"] = \"t-0\"\nif __name__ == \"__main__\":\n    pass\n");
}

TEST(PythonTemplateTest, H075GuardAndMainConfigAreNeeded) {
  EXPECT_THAT(fill_python_template("main_config = {}\n", {}, "t").error().message(),
              HasSubstr("if __name__"));
  EXPECT_THAT(fill_python_template("if __name__ == '__main__':\n", {}, "t").error().message(),
              HasSubstr("main_config"));
}

TEST(PythonTemplateTest, H076GuardsThatCount) {
  const auto counts = [](const std::string& guard) {
    return fill_python_template("main_config = {}\n" + guard, {}, "t").has_value();
  };
  for (const char* guard : {"if __name__=='__main__':", "if __name__ is \"__main__\" : run()"}) {
    EXPECT_TRUE(counts(guard)) << guard;
  }
  for (const char* guard : {"  if __name__ == '__main__':", "if '__main__' == __name__:"}) {
    EXPECT_FALSE(counts(guard)) << guard;
  }
}

TEST(PythonTemplateTest, LiteralsAreEscaped) {
  EXPECT_EQ(python_literal(Value("a\"b\n\\")), "\"a\\\"b\\x0a\\\\\"");
  EXPECT_EQ(python_literal(from_text(R"([true, null, {"k": 1}])")), "[True, None, {\"k\": 1}]");
  EXPECT_EQ(python_literal(Value(2.0)), "2.0");
  EXPECT_EQ(python_literal(Value(std::nan(""))), "float(\"nan\")");
  EXPECT_EQ(python_literal(Value(-HUGE_VAL)), "float(\"-inf\")");
}

TEST(PythonTemplateTest, PathsThatTheTemplateLacksAreFound) {
  EXPECT_THAT(*missing_in_template(kTemplate, {"policy.lr", "policy.eps.1"}, "python3", "."),
              IsEmpty());
  EXPECT_THAT(*missing_in_template(kTemplate, {"policy.learn.lr", "policy.eps.7"}, "python3", "."),
              ElementsAre("policy.learn.lr", "policy.eps.7"));
}

TEST(PythonTemplateTest, TemplateThatFailsSaysItsLastLine) {
  const std::string broken = "main_config = {\nif __name__ == \"__main__\":\n    pass\n";
  EXPECT_THAT(missing_in_template(broken, {"a"}, "python3", ".").error().message(),
              HasSubstr("SyntaxError"));
}

}  // namespace
}  // namespace divisi::tune_run
