#include "options.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cartpole {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

auto parsing(std::vector<std::string> args) {
  return [args = std::move(args)] { parse(args); };
}

// What is told to workers; those that are not told stay as they are.
void expect_round_trip(const Options& options) {
  const Options again = parse(to_arguments(options));
  EXPECT_EQ(again.config.entries(), options.config.entries());
  EXPECT_EQ(again.mode, options.mode);
  EXPECT_EQ(again.roles, options.roles);
  EXPECT_EQ(again.parallel_workers, options.parallel_workers);
  EXPECT_EQ(again.role, options.role);
  EXPECT_EQ(again.node_id, options.node_id);
  EXPECT_EQ(again.address, options.address);
  EXPECT_EQ(again.port, options.port);
  EXPECT_EQ(again.attach_to, options.attach_to);
  EXPECT_EQ(again.runs, options.runs);
  EXPECT_EQ(again.run_folder, options.run_folder);
  EXPECT_EQ(again.resume, options.resume);
  EXPECT_FALSE(again.display);
}

TEST(OptionsTest, The_arguments_of_options_give_the_same_options) {
  using Args = std::vector<std::string>;
  for (const Args& args : {
           Args{"--run-folder", "a"},
           Args{"--run-folder", "a b", "--alone", "--resume"},
           Args{"--run-folder", "a", "--parallel-workers", "4", "--seed", "7"},
           Args{"--run-folder", "a", "--preset", "long", "policy.learn.learning_rate=0.00025"},
           Args{"--run-folder", "a", "--roles", "evaluator,collector,learner,replay"},
           Args{"--run-folder", "a", "--runs", "elsewhere", "exp_name=x=y", "seed=3"},
           Args{"--run-folder", "a", "--role", "collector", "--node-id", "3", "--address", "::1",
                "--port", "7", "--attach-to", "tcp://a:1,tcp://b:2"},
       }) {
    expect_round_trip(parse(args));
  }
}

TEST(OptionsTest, A_seed_names_the_folder_unless_it_has_a_name) {
  EXPECT_EQ(parse({"--seed", "7"}).config.exp_name, "cartpole_dqn_seed7");
  EXPECT_EQ(parse({"--seed", "7", "exp_name=mine"}).config.exp_name, "mine");
  EXPECT_EQ(parse({"--preset", "long"}).config.stop_value, 475);
  EXPECT_EQ(parse({"--preset", "short"}).config.stop_value, 195);
}

TEST(OptionsTest, Help_is_given_whatever_else_is_wrong_with_the_values) {
  EXPECT_TRUE(parse({"env.name=none", "--help"}).help);
  EXPECT_THAT(usage(), HasSubstr("--parallel-workers"));
}

TEST(OptionsTest, Mistakes_are_named) {
  using divisi::UsageError;
  EXPECT_THAT(parsing({"--aloen"}), ThrowsMessage<UsageError>(HasSubstr("'--alone'")));
  EXPECT_THAT(parsing({"nonsense"}), ThrowsMessage<UsageError>(HasSubstr("'nonsense'")));
  EXPECT_THAT(parsing({"--seed"}), ThrowsMessage<UsageError>(HasSubstr("--seed needs a value")));
  EXPECT_THAT(parsing({"--port", "0"}), ThrowsMessage<UsageError>(HasSubstr("1 to 65535")));
  EXPECT_THAT(parsing({"--port", "8x"}), ThrowsMessage<UsageError>(HasSubstr("--port 8x")));
  EXPECT_THAT(parsing({"--role", "lerner"}), ThrowsMessage<UsageError>(HasSubstr("'learner'")));
  EXPECT_THAT(parsing({"--roles", "replay,learner,collector"}),
              ThrowsMessage<UsageError>(HasSubstr("at least one evaluator")));
  EXPECT_THAT(parsing({"--roles", "replay,replay,learner,collector,evaluator"}),
              ThrowsMessage<UsageError>(HasSubstr("one replay only")));
}

}  // namespace
}  // namespace cartpole
