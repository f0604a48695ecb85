#include "json/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divisi::json {
namespace {

using ::testing::HasSubstr;

TEST(JsonTest, ReadsEveryKindOfValue) {
  const auto value = parse(R"({"a": [1, -2.5, true, null, "x\n\u00e9"], "b": {}})");
  ASSERT_TRUE(value.has_value()) << value.error().message();
  const Array& items = *value->find("a")->as_array();
  ASSERT_EQ(items.size(), 5U);
  EXPECT_EQ(*items[0].as_int(), 1);
  EXPECT_EQ(*items[1].as_double(), -2.5);
  EXPECT_TRUE(*items[2].as_bool());
  EXPECT_TRUE(items[3].is_null());
  EXPECT_EQ(*items[4].as_string(), "x\n\xc3\xa9");
  EXPECT_TRUE(value->find("b")->as_object()->empty());
  EXPECT_EQ(value->find("c"), nullptr);
  EXPECT_EQ(items[0].find("a"), nullptr);
}

TEST(JsonTest, PrintsWhatItReadsInTheSameOrder) {
  const std::string text = R"({"z":1,"a":["x\"y",false,2.5,null],"m":{}})";
  const auto value = parse(text);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(print(*value), text);
  EXPECT_EQ(print(Value(Object{{"k", Array{1, 2}}}), 2), "{\n  \"k\": [\n    1,\n    2\n  ]\n}");
}

TEST(JsonTest, NamesTheLineAndColumnOfAMistake) {
  const auto missing_colon = parse("{\n  \"a\": 1,\n  \"b\" 2\n}");
  ASSERT_FALSE(missing_colon.has_value());
  EXPECT_THAT(missing_colon.error().message(), HasSubstr("line 3, column 7"));
  EXPECT_EQ(missing_colon.error().code(), Code::kInvalid);

  EXPECT_THAT(parse("").error().message(), HasSubstr("line 1, column 1"));
  EXPECT_THAT(parse("{} x").error().message(), HasSubstr("line 1, column 4"));
  EXPECT_THAT(parse("[1,").error().message(), HasSubstr("incomplete"));
}

TEST(JsonTest, RefusesADuplicateKeyAtItsPosition) {
  const auto value = parse("{\"a\": {\"x\": 1}, \"b\": [\"a\", \"a\"],\n \"\\u0061\": 2}");
  ASSERT_FALSE(value.has_value());
  EXPECT_THAT(value.error().message(), HasSubstr("line 2, column 2: this key appears twice"));
  EXPECT_TRUE(parse(R"([{"a": 1}, {"a": 1}, "a,{", {"a\"": 1, "a": {"a": 1}}])").has_value());
}

TEST(JsonTest, BoundsDepthAndSize) {
  EXPECT_FALSE(parse(std::string(100000, '[')).has_value());
  EXPECT_FALSE(parse("[[[1]]]", {.max_depth = 2}).has_value());
  EXPECT_TRUE(parse("[[1]]", {.max_depth = 2}).has_value());
  EXPECT_THAT(parse("[1, 2]", {.max_bytes = 5}).error().message(), HasSubstr("limit of 5"));
}

}  // namespace
}  // namespace divisi::json
