#include "dist/python_repr.h"

#include <gtest/gtest.h>

namespace divisi::dist {
namespace {

TEST(PythonReprTest, AnAnswerLooksAsInTheDocument) {
  const auto data = json::parse(R"({"namespace":"default","coordinator":"c","collectors":
      ["a.default:80","b.default:80"],"learners":[]})");
  EXPECT_EQ(python_repr(*data),
            "{'namespace': 'default', 'coordinator': 'c', 'collectors': "
            "['a.default:80', 'b.default:80'], 'learners': []}");
}

TEST(PythonReprTest, EveryKindOfValueHasItsText) {
  EXPECT_EQ(python_repr(*json::parse(R"([null, true, false, 3, 0.5, 1.0, {}])")),
            "[None, True, False, 3, 0.5, 1.0, {}]");
  EXPECT_EQ(python_repr(std::string_view("it's")), "\"it's\"");
  EXPECT_EQ(python_repr(std::string_view("a'b\"c")), "'a\\'b\"c'");
  EXPECT_EQ(python_repr(std::string_view("a\n\t\\\x01")), "'a\\n\\t\\\\\\x01'");
  EXPECT_EQ(python_repr(1620615124.456363), "1620615124.456363");
  EXPECT_EQ(python_repr(6.016488075256348), "6.016488075256348");
}

}  // namespace
}  // namespace divisi::dist
