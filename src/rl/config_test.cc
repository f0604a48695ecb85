#include "rl/config.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::rl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string refusal(std::string_view key, std::string_view value) {
  DqnConfig config;
  try {
    config.set(key, value);
    config.check();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "taken";
}

TEST(ConfigTest, Every_key_takes_what_entries_says) {
  DqnConfig config;
  config.hidden = {32, 16};
  config.dueling = false;
  config.learning_rate = 0.00025;
  config.max_env_step = 123'456'789'012;
  config.exp_name = "a name = with signs";
  DqnConfig copy;
  for (const auto& [key, value] : config.entries()) copy.set(key, value);
  EXPECT_EQ(copy.entries(), config.entries());
  EXPECT_EQ(copy.hidden, config.hidden);
  EXPECT_EQ(copy.learning_rate, config.learning_rate);
  EXPECT_EQ(copy.max_env_step, config.max_env_step);
  config.check();
  DqnConfig read;
  read.load_json(config.to_json(), "config.json");
  EXPECT_EQ(read.entries(), config.entries());
}

TEST(ConfigTest, A_key_that_does_not_exist_is_refused_with_the_nearest_one) {
  EXPECT_THAT(refusal("policy.learn.bach_size", "1"),
              AllOf(HasSubstr("'policy.learn.bach_size'"),
                    HasSubstr("did you mean 'policy.learn.batch_size'?")));
  EXPECT_THAT(refusal("zebra", "1"), HasSubstr("there is no configuration key 'zebra'"));
}

TEST(ConfigTest, A_value_that_is_none_is_refused_with_its_key_and_what_was_expected) {
  EXPECT_EQ(refusal("policy.learn.batch_size", "64x"),
            "policy.learn.batch_size=64x: expected a whole number");
  EXPECT_EQ(refusal("policy.learn.batch_size", "6.5"),
            "policy.learn.batch_size=6.5: expected a whole number");
  EXPECT_EQ(refusal("policy.learn.batch_size", "0"),
            "policy.learn.batch_size=0: expected a number from 1 to 65536");
  EXPECT_EQ(refusal("seed", "-1"), "seed=-1: expected 0 or more");
  EXPECT_EQ(refusal("seed", "99999999999999999999"),
            "seed=99999999999999999999: expected a whole number");
  EXPECT_EQ(refusal("policy.learn.learning_rate", ""),
            "policy.learn.learning_rate=: expected a number");
  EXPECT_EQ(refusal("env.stop_value", "nan"), "env.stop_value=nan: expected a number");
  EXPECT_EQ(refusal("env.stop_value", "inf"), "env.stop_value=inf: expected a number");
  EXPECT_EQ(refusal("policy.model.dueling", "maybe"),
            "policy.model.dueling=maybe: expected true or false");
  EXPECT_EQ(refusal("policy.model.encoder_hidden_size_list", "64,,64"),
            "policy.model.encoder_hidden_size_list=: expected a whole number");
}

TEST(ConfigTest, Values_that_cannot_train_are_refused_before_the_run) {
  EXPECT_THAT(refusal("policy.learn.learning_rate", "0"), HasSubstr("above 0"));
  EXPECT_THAT(refusal("policy.discount_factor", "0"), HasSubstr("above 0"));
  EXPECT_THAT(refusal("policy.other.eps.type", "square"), HasSubstr("expected exp or linear"));
  EXPECT_THAT(refusal("policy.other.replay_buffer.replay_buffer_size", "10"),
              HasSubstr("less than policy.learn.batch_size=64"));
  EXPECT_THAT(refusal("exp_name", ""), HasSubstr("exp_name is empty"));
  EXPECT_THAT(refusal("env.name", "CartPol-v1"), HasSubstr("did you mean 'CartPole-v1'?"));
  EXPECT_THAT(refusal("env.name", "Pendulum-v1"), HasSubstr("continuous"));
}

TEST(ConfigTest, Lists_have_brackets_or_not) {
  DqnConfig config;
  config.set("policy.model.encoder_hidden_size_list", "[8, 9]");
  EXPECT_EQ(config.hidden, (std::vector<int>{8, 9}));
  config.set("policy.model.encoder_hidden_size_list", "7");
  EXPECT_EQ(config.hidden, (std::vector<int>{7}));
}

TEST(ConfigTest, Json_is_nested_or_dotted) {
  DqnConfig config;
  config.load_json(R"({"policy": {"learn": {"batch_size": 32, "learning_rate": 0.5},
                                  "model": {"encoder_hidden_size_list": [4, 5]}},
                       "policy.nstep": 3, "policy.double_q": false, "exp_name": "x"})",
                   "my.json");
  EXPECT_EQ(config.batch_size, 32);
  EXPECT_EQ(config.learning_rate, 0.5);
  EXPECT_EQ(config.hidden, (std::vector<int>{4, 5}));
  EXPECT_EQ(config.nstep, 3);
  EXPECT_FALSE(config.double_q);
  EXPECT_EQ(config.exp_name, "x");
}

TEST(ConfigTest, Errors_in_json_name_the_file) {
  const auto loading = [](const char* text) {
    return [text] { DqnConfig().load_json(text, "my.json"); };
  };
  EXPECT_THAT(loading("{"), ThrowsMessage<UsageError>(HasSubstr("my.json: ")));
  EXPECT_THAT(loading("[]"), ThrowsMessage<UsageError>(HasSubstr("my.json: expected an object")));
  EXPECT_THAT(loading(R"({"policy": {"lern": {"batch_size": 1}}})"),
              ThrowsMessage<UsageError>(AllOf(
                  HasSubstr("my.json: "), HasSubstr("did you mean 'policy.learn.batch_size'"))));
  EXPECT_THAT(loading(R"({"seed": null})"),
              ThrowsMessage<UsageError>(HasSubstr("my.json: 'seed' cannot be")));
  EXPECT_THAT(loading(R"({"seed": "x"})"), ThrowsMessage<UsageError>(HasSubstr("my.json: seed=x")));
}

}  // namespace
}  // namespace divisi::rl
