#include "json/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
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

TEST(JsonTest, ChangesInPlace) {
  Value pod;
  pod["metadata"]["labels"]["app"] = "x";
  pod["metadata"]["name"] = "a";
  pod["spec"]["replicas"] = 3;
  EXPECT_EQ(print(pod), R"({"metadata":{"labels":{"app":"x"},"name":"a"},"spec":{"replicas":3}})");
  EXPECT_TRUE(pod.find("metadata")->erase("labels"));
  EXPECT_FALSE(pod.find("metadata")->erase("labels"));
  EXPECT_FALSE(Value(7).erase("x"));
  *pod.find("metadata")->find("name")->as_string() += "b";
  pod["spec"]["list"] = Array{1};
  pod["spec"]["list"].as_array()->push_back(2);
  EXPECT_EQ(print(pod), R"({"metadata":{"name":"ab"},"spec":{"replicas":3,"list":[1,2]}})");
  pod["spec"]["replicas"]["now"] = "an object";
  EXPECT_EQ(pod.string_at({"spec", "replicas", "now"}), "an object");
}

TEST(JsonTest, FindsByPath) {
  const Value value = *parse(R"({"a":{"b":{"s":"x","i":7,"t":true}},"l":[1]})");
  EXPECT_EQ(value.string_at({"a", "b", "s"}), "x");
  EXPECT_EQ(value.int_at({"a", "b", "i"}), 7);
  EXPECT_EQ(value.bool_at({"a", "b", "t"}), true);
  EXPECT_EQ(value.string_at({"a", "b", "i"}), "");
  EXPECT_EQ(value.int_at({"a", "x", "i"}), std::nullopt);
  EXPECT_EQ(value.bool_at({"l", "x"}), std::nullopt);
  EXPECT_EQ(value.find_path({}), &value);
}

TEST(JsonTest, ComparesByMeaning) {
  const auto same = [](std::string_view a, std::string_view b) {
    return equivalent(*parse(a), *parse(b)) && equivalent(*parse(b), *parse(a));
  };
  EXPECT_TRUE(same(R"({"a":1,"b":[{"x":1,"y":2}]})", R"({"b":[{"y":2.0,"x":1}],"a":1.0})"));
  EXPECT_FALSE(same(R"({"a":1,"b":2})", R"({"a":1,"c":2})"));
  EXPECT_FALSE(same(R"({"a":1})", R"({"a":1,"c":2})"));
  EXPECT_FALSE(same("[1,2]", "[2,1]"));
  EXPECT_FALSE(same("[1]", "[1,1]"));
  EXPECT_FALSE(same("1", "\"1\""));
  EXPECT_FALSE(same("9007199254740993", "9007199254740992.0"));
  EXPECT_FALSE(same("9223372036854775807", "9223372036854775808"));
  EXPECT_FALSE(same("1", "1.5"));
  EXPECT_FALSE(same("0", "null"));
}

TEST(JsonTest, ReadsTheNearestDoubleAndRefusesWhatIsTooLarge) {
  EXPECT_EQ(*parse("0.1")->as_double(), 0.1);
  EXPECT_EQ(*parse("123456789.123456789e-3")->as_double(), 123456.789123456789);
  EXPECT_EQ(*parse("2.2250738585072011e-308")->as_double(), 2.2250738585072011e-308);
  EXPECT_EQ(*parse("1e-999")->as_double(), 0);
  EXPECT_EQ(*parse("18446744073709551615")->as_double(), 18446744073709551615.0);
  EXPECT_THAT(parse("[1e999]").error().message(), HasSubstr("line 1, column"));
}

TEST(JsonTest, ReadsAnObjectOfManyKeysAndFindsTheOneThatIsThereTwice) {
  std::string text = "{";
  for (int i = 0; i < 100000; ++i) text += fmt::format("\"{}\":{},\n", i, i);
  EXPECT_EQ(parse(text + "\"x\":1}")->as_object()->size(), 100001U);
  EXPECT_THAT(parse(text + "\"77\":1}").error().message(),
              HasSubstr("line 100001, column 1: this key appears twice"));
}

TEST(JsonTest, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(print(Value(std::string("a\"\\\b\f\n\r\t\x01\x1f\x7f/\0z", 14))),
            R"("a\"\\\b\f\n\r\t\u0001\u001f)"
            "\x7f/\\u0000z\"");
}

TEST(JsonParserTest, AnyCutGivesTheSameValue) {
  const std::string text =
      R"( {"metadata": {"n\u00e4me": "a\"b\\\u20ac", "count": -1234567, "big": 18446744073709551615},
         "items": [1.25e-3, true, false, null, [], {}, "", "x"], "k": 12} )";
  const auto whole = parse(text);
  ASSERT_TRUE(whole) << whole.error().message();
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Parser parser;
    ASSERT_TRUE(parser.write(std::string_view(text).substr(0, cut)).ok());
    ASSERT_TRUE(parser.write(std::string_view(text).substr(cut)).ok());
    EXPECT_EQ(*parser.finish(), *whole) << cut;
  }
  Parser bytewise;
  for (const char& c : text) ASSERT_TRUE(bytewise.write({&c, 1}).ok());
  EXPECT_EQ(*bytewise.finish(), *whole);
}

TEST(JsonParserTest, SaysAtWhichByteTheTextIsWrongAndStaysWrong) {
  Parser parser;
  EXPECT_TRUE(parser.write("{\"a\": ").ok());
  EXPECT_THAT(parser.write("<html>").message(), HasSubstr("byte 7"));
  EXPECT_THAT(parser.write("1}").message(), HasSubstr("byte 7"));
  EXPECT_FALSE(parser.finish());

  Parser cut;
  EXPECT_TRUE(cut.write("[1, 2").ok());
  EXPECT_THAT(cut.finish().error().message(), HasSubstr("not valid JSON at byte 6"));
  EXPECT_FALSE(Parser().finish()) << "nothing is no document";

  Parser twice;
  EXPECT_THAT(twice.write(R"({"a":1,"a":2})").message(), HasSubstr("has a key twice"));
  Parser after;
  EXPECT_TRUE(after.write("{}").ok());
  EXPECT_THAT(after.write(" x").message(), HasSubstr("text after the end"));
  Parser deep({.max_depth = 3});
  EXPECT_FALSE(deep.write("[[[[").ok());
  Parser large({.max_bytes = 4});
  EXPECT_TRUE(large.write("[1,").ok());
  EXPECT_THAT(large.write("2]").message(), HasSubstr("limit of 4 bytes"));
}

}  // namespace
}  // namespace divisi::json
