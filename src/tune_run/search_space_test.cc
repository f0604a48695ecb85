#include "tune_run/search_space.h"

#include "json/yaml.h"
#include "tune_run/value_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::tune_run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<SearchSpace> space_of(std::string_view yaml) {
  return parse_space(*json::parse_yaml_one(yaml));
}

std::string problem(std::string_view yaml) {
  const auto space = space_of(yaml);
  return space ? "accepted" : space.error().message();
}

std::string flag(std::string_view text) {
  json::Value space = json::Object{};
  const Status status = add_space_flag(space, text);
  return status.ok() ? json::print(space) : status.message();
}

TEST(SearchSpaceTest, NamesFollowTheOrderOfTheEngine) {
  const auto space = space_of("{z: {uniform: [0, 1]}, a: {list: [{randint: [1, 3]}, 7]}, k: dqn}");
  ASSERT_TRUE(space.has_value());
  EXPECT_THAT(space->names, ElementsAre("a.list.0", "z"));
  EXPECT_THAT(space->structure.names(), ElementsAre("z", "a.list.0"));
  EXPECT_EQ(to_text(space->structure.config({2, 0.5})),
            R"({"a":{"list":[2,7]},"k":"dqn","z":0.5})");
}

TEST(SearchSpaceTest, EveryKindOfSpace) {
  const auto space = space_of(R"(
a: {uniform: [0, 1]}
b: {quniform: [0, 1, 0.5]}
c: {randint: [1, 3]}
d: {qrandint: [1, 9, 2]}
e: {loguniform: [1, 100]}
f: {qloguniform: [0.1, 1, 0.1]}
g: {lograndint: [1, 8]}
h: {normal: [0, 1]}
i: {choice: [relu, [64, 64], null]}
j: {fixed: 3}
)");
  ASSERT_TRUE(space.has_value()) << problem("");
  EXPECT_EQ(space->names.size(), 10U);
  EXPECT_EQ(to_text(space->structure.config({0.25, 0.5, 2, 3, 0, -1, 0, 0.5, 1, 0})),
            R"({"a":0.25,"b":0.5,"c":2,"d":3,"e":1,"f":0.4,"g":1,"h":0,"i":[64,64],"j":3})");
}

TEST(SearchSpaceTest, MistakesNameTheirPlace) {
  EXPECT_THAT(problem("{p: {lr: {loguniform: [0, 1]}}}"), HasSubstr("p.lr: loguniform"));
  EXPECT_THAT(problem("{x: {uniform: [0]}}"), HasSubstr("x: uniform takes 2 numbers"));
  EXPECT_THAT(problem("{x: {uniform: 3}}"), HasSubstr("takes a list"));
  EXPECT_THAT(problem("{x: {unifrom: [0, 1]}}"), HasSubstr("did you mean 'uniform'?"));
  EXPECT_THAT(problem("{x: {choice: []}}"), HasSubstr("nothing to choose from"));
  EXPECT_THAT(problem("{x: {uniform: [a, b]}}"), HasSubstr("2 numbers"));
  EXPECT_THAT(problem("{x: 1}"), HasSubstr("nothing to search"));
  EXPECT_THAT(problem("[1]"), HasSubstr("a map of variables"));
}

TEST(SearchSpaceTest, FlagsAreShortForms) {
  EXPECT_EQ(flag("lr=loguniform:1e-5,1e-1"), R"({"lr":{"loguniform":[1e-05,0.1]}})");
  EXPECT_EQ(flag("p.act=choice:relu,tanh"), R"({"p":{"act":{"choice":["relu","tanh"]}}})");
  EXPECT_EQ(flag("n=choice:16,32"), R"({"n":{"choice":[16,32]}})");
  EXPECT_EQ(flag("k=fixed:dqn"), R"({"k":{"fixed":"dqn"}})");
  EXPECT_EQ(flag("lr: {uniform: [0, 1]}"), R"({"lr":{"uniform":[0,1]}})");
}

TEST(SearchSpaceTest, WrongFlagsSayWhatToWrite) {
  EXPECT_THAT(flag("lr"), HasSubstr("write NAME=KIND:ARGUMENTS"));
  EXPECT_THAT(flag("lr=loguni:1,2"), HasSubstr("there is no space 'loguni'"));
  EXPECT_THAT(flag("a..b=uniform:0,1"), HasSubstr("an empty part"));
  json::Value space = json::Object{};
  ASSERT_TRUE(add_space_flag(space, "x=uniform:0,1").ok());
  EXPECT_THAT(add_space_flag(space, "x=uniform:0,2").message(), HasSubstr("is there twice"));
}

}  // namespace
}  // namespace divisi::tune_run
