#include "json/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divisi::json {
namespace {

using ::testing::HasSubstr;

bool selects(std::string_view selector, const Labels& labels) {
  const auto parsed = LabelSelector::parse(selector);
  EXPECT_TRUE(parsed.has_value()) << selector << parsed.error().message();
  Value object{Object{}};
  for (const auto& [key, value] : labels) object[key] = value;
  EXPECT_EQ(parsed->matches(labels), parsed->matches(object)) << selector;
  return parsed->matches(labels);
}

std::string canonical(std::string_view text) {
  const auto parsed = LabelSelector::parse(text);
  if (!parsed) return parsed.error().message();
  EXPECT_EQ(LabelSelector::parse(parsed->to_string()).value(), *parsed) << text;
  return parsed->to_string();
}

TEST(LabelSelectorTest, MatchesEveryOperator) {
  const Labels labels = {{"app", "rl"}, {"n", "5"}, {"empty", ""}};
  for (const char* text : {"",
                           " ",
                           "app",
                           "app=rl",
                           "app==rl",
                           "app = rl",
                           "app in (x,rl)",
                           "app in( rl )",
                           "!x",
                           "x!=1",
                           "app!=x",
                           "app notin (x,y)",
                           "x notin (rl)",
                           "n>4",
                           "n<6",
                           "empty=",
                           "empty",
                           "empty in ()",
                           "empty in (a,)",
                           "app=rl,n=5,!x",
                           "app=rl , n"}) {
    EXPECT_TRUE(selects(text, labels)) << text;
  }
  for (const char* text : {"x", "app=x", "!app", "app!=rl", "app in (x)", "app notin (rl,x)",
                           "app=", "x=", "n>5", "n<5", "x>1", "app>1", "app=rl,x"}) {
    EXPECT_FALSE(selects(text, labels)) << text;
  }
  EXPECT_TRUE(LabelSelector::parse("!a")->matches(Value()));
  EXPECT_TRUE(selects("in,notin in (in)", {{"in", "1"}, {"notin", "in"}}));
}

TEST(LabelSelectorTest, HasACanonicalText) {
  EXPECT_EQ(canonical("b==2, a in (y,x,y) ,c notin (z),!d,e, f != g,h>1,i<2"),
            "a in (x,y),b=2,c!=z,!d,e,f!=g,h>1,i<2");
  EXPECT_EQ(canonical("a in (,x)"), "a in (,x)");
  EXPECT_EQ(canonical("a="), "a=");
  EXPECT_EQ(canonical(""), "");
  EXPECT_EQ(canonical("example.com/app=x"), "example.com/app=x");
}

TEST(LabelSelectorTest, RefusesWhatTheApiServerRefuses) {
  EXPECT_THAT(canonical("a,"), HasSubstr("expected the name of a label at character 3"));
  EXPECT_THAT(canonical(",a"), HasSubstr("expected the name of a label at character 1"));
  EXPECT_THAT(canonical("a in x"), HasSubstr("expected ( at character"));
  EXPECT_THAT(canonical("a in (x"), HasSubstr("expected )"));
  EXPECT_THAT(canonical("a b"), HasSubstr("expected a comma or the end"));
  EXPECT_THAT(canonical("!a=b"), HasSubstr("expected a comma or the end"));
  EXPECT_THAT(canonical("a=b=c"), HasSubstr("expected a comma or the end"));
  EXPECT_THAT(canonical("a>x"), HasSubstr("which is no integer"));
  EXPECT_THAT(canonical("-a=b"), HasSubstr("\"-a\" is no label key"));
  EXPECT_THAT(canonical("a=-b"), HasSubstr("\"-b\" is no label value"));
  EXPECT_THAT(canonical(std::string(64, 'k')), HasSubstr("is no label key"));
  EXPECT_THAT(canonical("a=" + std::string(64, 'v')), HasSubstr("is no label value"));
  EXPECT_THAT(canonical("Example.com/a=b"), HasSubstr("before the / stands a DNS name"));
  EXPECT_THAT(canonical("a/b/c"), HasSubstr("is no label key"));
  EXPECT_THAT(canonical("/a"), HasSubstr("before the /"));
  EXPECT_THAT(canonical("a/"), HasSubstr("is no label key"));
  EXPECT_THAT(canonical(std::string(254, 'p') + "/a"), HasSubstr("253"));
  EXPECT_THAT(canonical(std::string(100000, ' ')), HasSubstr("at most 65536"));
}

TEST(LabelSelectorTest, AcceptsKeysAndValuesUpToTheirLimits) {
  EXPECT_TRUE(check_label_key(std::string(63, 'k')).ok());
  EXPECT_TRUE(check_label_key(std::string(253, 'p') + "/" + std::string(63, 'k')).ok());
  EXPECT_TRUE(check_label_key("a.b-c.io/A_b.C-9").ok());
  EXPECT_TRUE(check_label_value(std::string(63, 'v')).ok());
  EXPECT_FALSE(check_label_key("").ok());
  EXPECT_FALSE(check_label_key("a..b/x").ok());
  EXPECT_FALSE(check_label_value("a b").ok());
}

TEST(LabelSelectorTest, ReadsTheObjectForm) {
  const auto read = [](std::string_view text) { return LabelSelector::from_object(*parse(text)); };
  const auto selector = read(
      R"({"matchLabels":{"b":"1"},"matchExpressions":[{"key":"a","operator":"In","values":["y","x"]},)"
      R"({"key":"c","operator":"Exists"},{"key":"d","operator":"DoesNotExist","values":[]},)"
      R"({"key":"e","operator":"NotIn","values":["z"]}]})");
  ASSERT_TRUE(selector.has_value()) << selector.error().message();
  EXPECT_EQ(selector->to_string(), "a in (x,y),b=1,c,!d,e!=z");
  EXPECT_EQ(*selector, *LabelSelector::parse(selector->to_string()));

  EXPECT_TRUE(read("{}")->matches(Labels{}));
  EXPECT_FALSE(read("null")->matches(Labels{}));
  EXPECT_TRUE(read("null")->selects_nothing());

  EXPECT_THAT(read("[]").error().message(), HasSubstr("is an object, not array"));
  EXPECT_THAT(read(R"({"matchLabels":{"a":1}})").error().message(), HasSubstr("number"));
  EXPECT_THAT(read(R"({"matchLabels":{"a":"-"}})").error().message(), HasSubstr("no label value"));
  EXPECT_THAT(read(R"({"matchExpressions":[{"key":"a","operator":"in"}]})").error().message(),
              HasSubstr(R"(the operator "in" for label "a" is not In)"));
  EXPECT_THAT(read(R"({"matchExpressions":[{"key":"a","operator":"In"}]})").error().message(),
              HasSubstr("needs values"));
  EXPECT_THAT(read(R"({"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]})")
                  .error()
                  .message(),
              HasSubstr("needs no values"));
  EXPECT_THAT(read(R"({"matchExpressions":[7]})").error().message(), HasSubstr("operator"));
}

bool field_selects(std::string_view selector, const Value& object) {
  const auto parsed = FieldSelector::parse(selector);
  EXPECT_TRUE(parsed.has_value()) << selector;
  EXPECT_EQ(FieldSelector::parse(parsed->to_string()).value(), *parsed) << selector;
  return parsed->matches(object);
}

TEST(FieldSelectorTest, MatchesFieldsByTheirPath) {
  const Value pod = *parse(R"({"metadata":{"name":"a,b=c\\d"},"status":{"phase":"Running"},)"
                           R"("spec":{"replicas":3,"hostNetwork":true,"nodeName":null}})");
  for (const char* text :
       {"", ",", "status.phase=Running", "status.phase==Running", "status.phase!=Failed",
        R"(metadata.name=a\,b\=c\\d)", "spec.nodeName=", "spec.absent=", "spec.absent!=x",
        "spec.replicas=3", "spec.hostNetwork=true", "status.phase=Running,spec.replicas!=4"}) {
    EXPECT_TRUE(field_selects(text, pod)) << text;
  }
  for (const char* text : {"status.phase=running", "status.phase!=Running", "spec.replicas=4",
                           "status.phase=Running,metadata.name=x", "status.phase.x=Running"}) {
    EXPECT_FALSE(field_selects(text, pod)) << text;
  }
}

TEST(FieldSelectorTest, RefusesWhatItCannotRead) {
  const auto message = [](std::string_view text) {
    return FieldSelector::parse(text).error().message();
  };
  EXPECT_THAT(message("metadata.name"), HasSubstr("has no = or !="));
  EXPECT_THAT(message("=x"), HasSubstr("does not start with the path"));
  EXPECT_THAT(message("!=x"), HasSubstr("does not start with the path"));
  EXPECT_THAT(message("a=b=c"), HasSubstr("\\ stands before each"));
  EXPECT_THAT(message("a=\\b"), HasSubstr("\\ stands before each"));
  EXPECT_THAT(message("a=b\\"), HasSubstr("\\ stands before each"));
  EXPECT_THAT(message(std::string(100000, 'a')), HasSubstr("at most 65536"));
}

}  // namespace
}  // namespace divisi::json
