#include "json/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace divisi::json {
namespace {

using ::testing::HasSubstr;

// The JSON of one document, or the message.
std::string json_of(std::string_view yaml) {
  const auto value = parse_yaml_one(yaml);
  return value ? print(*value) : value.error().message();
}

TEST(YamlTest, ReadsAManifest) {
  EXPECT_EQ(json_of("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: {app: x, m: '1'}\n"
                    "spec:\n  containers:\n  - name: c\n    args: [\"-v\", 'it''s']\n"),
            R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":)"
            R"({"app":"x","m":"1"}},"spec":{"containers":[{"name":"c","args":["-v","it's"]}]}})");
}

TEST(YamlTest, ResolvesPlainScalarsAsYaml11) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"yes", "true"},
      {"Y", "true"},
      {"on", "true"},
      {"TRUE", "true"},
      {"off", "false"},
      {"n", "false"},
      {"No", "false"},
      {"yEs", "\"yEs\""},
      {"~", "null"},
      {"NULL", "null"},
      {"nULL", "\"nULL\""},
      {"12", "12"},
      {"-12", "-12"},
      {"+12", "12"},
      {"1_000", "1000"},
      {"0x1F", "31"},
      {"-0x10", "-16"},
      {"0o17", "15"},
      {"017", "15"},
      {"0b101", "5"},
      {"08", "8"},
      {"1.5", "1.5"},
      {"1e3", "1000"},
      {".5", "0.5"},
      {"1.", "1"},
      {"-.5e-1", "-0.05"},
      {"1e400", "\"1e400\""},
      {"0x", "\"0x\""},
      {"1-2", "\"1-2\""},
      {"1.2.3", "\"1.2.3\""},
      {"0", "0"},
      {"-", "\"-\""},
      {"2001-01-01", "\"2001-01-01\""},
      {"12:30", "\"12:30\""},
      {"9223372036854775807", "9223372036854775807"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"18446744073709551615", "1.8446744073709552e+19"},
      {"'12'", "\"12\""},
      {"\"yes\"", "\"yes\""},
      {"!!str 12", "\"12\""},
      {"!!int '12'", "12"},
      {"!!float 3", "3"},
      {"!!bool 'yes'", "true"},
      {"!!null ''", "null"},
      {"!!binary aGk=", "\"hi\""},
      {"!custom 12", "\"12\""},
      {"! 12", "\"12\""}};
  for (const auto& [yaml, json] : cases) {
    if (yaml == "-") continue;  // a list of nothing, below
    EXPECT_EQ(json_of("v: " + yaml), "{\"v\":" + json + "}") << yaml;
  }
  EXPECT_EQ(json_of("-"), "[null]");
  EXPECT_EQ(json_of("a:\nb: ''"), R"({"a":null,"b":""})");
}

TEST(YamlTest, KeysBecomeStrings) {
  EXPECT_EQ(json_of("yes: 1\n0x10: 2\n1.5: 3\n'~': 4\n1e7: 5"),
            R"({"true":1,"16":2,"1.5":3,"~":4,"1e+07":5})");
  EXPECT_THAT(json_of("~: 1"), HasSubstr("line 1, column 1: null is no key"));
  EXPECT_THAT(json_of("a: 1\n? [x]\n: 2"), HasSubstr("line 2, column 3: the key of a map"));
  EXPECT_THAT(json_of("a: &x [1]\n*x : 2"), HasSubstr("line 2, column 1: the key of a map"));
}

TEST(YamlTest, RefusesAKeyThatAppearsTwice) {
  EXPECT_THAT(json_of("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n"),
              HasSubstr("line 5, column 3: the key \"c\" appears twice"));
  EXPECT_THAT(json_of("1: x\n0x1: y"), HasSubstr("line 2, column 1"));
  EXPECT_THAT(json_of("{<<: {a: 1}, <<: {b: 1}}"), HasSubstr("appears twice"));
}

TEST(YamlTest, ExpandsAliasesAndMergeKeys) {
  EXPECT_EQ(json_of("a: &x {k: 1}\nb: *x\nc: [*x, *x]"),
            R"({"a":{"k":1},"b":{"k":1},"c":[{"k":1},{"k":1}]})");
  EXPECT_EQ(json_of("base: &b {a: 1, b: 2}\nnext:\n  b: 3\n  <<: *b\n  c: 4"),
            R"({"base":{"a":1,"b":2},"next":{"b":3,"c":4,"a":1}})");
  EXPECT_EQ(json_of("{<<: [{a: 1}, {a: 2, b: 2}], b: 3}"), R"({"b":3,"a":1})");
  EXPECT_EQ(json_of("{'<<': 1}"), R"({"<<":1})");
  EXPECT_THAT(json_of("a: 1\n<<: 2"), HasSubstr("line 2, column 5: << takes a map"));
  EXPECT_THAT(json_of("<<: [{a: 1}, 2]"), HasSubstr("<< takes a map"));
  EXPECT_THAT(json_of("a: *nobody"), HasSubstr("line 1, column 4: there is no anchor &nobody"));
  EXPECT_THAT(json_of("a: &x [*x]"), HasSubstr("line 1, column 8: &x contains itself"));
}

TEST(YamlTest, BoundsWhatAliasesAdd) {
  std::string laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
  for (int i = 1; i < 12; ++i) {
    laughs += fmt::format("a{}: &a{} [*a{}", i, i, i - 1);
    for (int n = 0; n < 9; ++n) laughs += fmt::format(", *a{}", i - 1);
    laughs += "]\n";
  }
  EXPECT_THAT(json_of(laughs), HasSubstr("anchors and aliases add more than 16777216 bytes"));

  std::string deep = "a0: &a0 []\n";
  for (int i = 1; i < 100; ++i) deep += fmt::format("a{}: &a{} [*a{}]\n", i, i, i - 1);
  EXPECT_THAT(json_of(deep), HasSubstr("nested too deeply"));

  std::string kept;
  for (int i = 0; i < 60; ++i) kept += fmt::format("&a{} [", i);
  kept += std::string(1 << 20, 'x') + std::string(60, ']');
  EXPECT_THAT(json_of(kept), HasSubstr("anchors and aliases add more than 16777216 bytes"));
}

TEST(YamlTest, BoundsDepthAndSize) {
  EXPECT_THAT(json_of(std::string(100000, '[')), HasSubstr("line 1, column 65: nested too deeply"));
  EXPECT_TRUE(parse_yaml_one("[[1]]", {.max_depth = 2}).has_value());
  EXPECT_FALSE(parse_yaml_one("[[[1]]]", {.max_depth = 2}).has_value());
  EXPECT_THAT(parse_yaml("[1, 2]", {.max_bytes = 5}).error().message(), HasSubstr("limit of 5"));
}

TEST(YamlTest, ReadsDocumentsAndLeavesOutEmptyOnes) {
  const auto documents = parse_yaml("# nothing\n---\n---\na: 1\n---\n# comment\n---\nnull\n...\n");
  ASSERT_TRUE(documents.has_value()) << documents.error().message();
  ASSERT_EQ(documents->size(), 2U);
  EXPECT_EQ(print((*documents)[0]), R"({"a":1})");
  EXPECT_TRUE((*documents)[1].is_null());
  EXPECT_TRUE(parse_yaml("")->empty());
  EXPECT_THAT(json_of(""), HasSubstr("0 YAML documents where one is expected"));
  EXPECT_THAT(json_of("a\n---\nb"), HasSubstr("2 YAML documents"));
  EXPECT_THAT(json_of("a: &x 1\n---\nb: *x"), HasSubstr("line 3, column 4: there is no anchor"));
}

TEST(YamlTest, NamesTheLineAndColumnOfAMistake) {
  EXPECT_THAT(json_of("a: 1\nb: [1, 2\nc: 3"), HasSubstr("line 3, column"));
  EXPECT_THAT(json_of("a: 1\n\tb: 2"), HasSubstr("line 2, column 1"));
  EXPECT_THAT(json_of("a: b: c"), HasSubstr("line 1, column 5"));
  EXPECT_THAT(json_of("a: 1\nb: \xff"), HasSubstr("line 2, column 4"));
  EXPECT_THAT(json_of("a: .nan"), HasSubstr("line 1, column 4: JSON has no number for .nan"));
  EXPECT_THAT(json_of("a: !!float -.Inf"), HasSubstr("JSON has no number for -.Inf"));
  EXPECT_THAT(json_of("a: !!int x"), HasSubstr("\"x\" is not what its tag !!int says"));
  EXPECT_THAT(json_of("a: !!binary '?'"), HasSubstr("no base64"));
  EXPECT_THAT(json_of("a: !!binary /w=="), HasSubstr("no UTF-8"));
}

TEST(YamlTest, PrintsAsKubectlDoes) {
  const auto value = parse(
      R"({"apiVersion":"v1","metadata":{"name":"a","labels":{},"y":"no","port":"80"},"list":[],)"
      R"("spec":{"containers":[{"name":"c","args":["-v","a: b","it's","","x #y"]},)"
      R"({"nested":[[1,2],[{"k":null}]]}],"text":"one\ntwo\n","end":"one\ntwo","more":"a\n\n",)"
      R"("lead":"  a\nb","tab":"a\tb","odd":"a \nb","n":1.0,"f":1.5e30}})");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(print_yaml(*value), R"(apiVersion: v1
metadata:
  name: a
  labels: {}
  "y": "no"
  port: "80"
list: []
spec:
  containers:
  - name: c
    args:
    - -v
    - 'a: b'
    - it's
    - ""
    - 'x #y'
  - nested:
    - - 1
      - 2
    - - k: null
  text: |
    one
    two
  end: |-
    one
    two
  more: |+
    a

  lead: |2-
      a
    b
  tab: "a\tb"
  odd: "a \nb"
  "n": 1.0
  f: 1.5e+30
)");
  EXPECT_EQ(print_yaml(Value()), "null\n");
  EXPECT_EQ(print_yaml(Value("a\nb")), "|-\n  a\n  b\n");
}

TEST(YamlTest, PrintsALongKeyOnItsOwnLine) {
  const Value value(Object{{std::string(2000, 'k'), Object{{std::string(200, '\n'), Array{1}}}},
                           {"after", true}});
  const auto again = parse_yaml_one(print_yaml(value));
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, value);
}

}  // namespace
}  // namespace divisi::json
