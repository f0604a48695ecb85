#include "saved_config.h"

#include "divisi/error.h"
#include "json/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace cartpole {
namespace {

namespace fs = std::filesystem;
namespace json = divisi::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class SavedConfigTest : public ::testing::Test {
 protected:
  SavedConfigTest() {
    std::string name = (fs::temp_directory_path() / "run_XXXXXX").string();
    folder_.path = ::mkdtemp(name.data());
  }
  ~SavedConfigTest() override { fs::remove_all(folder_.path); }

  json::Value file() const {
    std::ifstream stream(folder_.config());
    return json::parse(std::string((std::istreambuf_iterator<char>(stream)), {})).value();
  }

  RunFolder folder_;
};

TEST_F(SavedConfigTest, ARunGoesOnAsItBegan) {
  EXPECT_FALSE(saved_options(folder_));
  const std::vector<std::vector<std::string>> all = {
      {},
      {"--alone", "--seed", "33", "env.stop_value=600"},
      {"--preset", "long", "--roles", "evaluator,collector,learner,replay"},
      {"--parallel-workers", "4", "policy.model.encoder_hidden_size_list=8,9", "exp_name=1e5"},
  };
  for (const auto& args : all) {
    const Options before = parse(args);
    save_config(folder_, before, "");
    const auto again = saved_options(folder_);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->config.entries(), before.config.entries());
    EXPECT_EQ(again->mode, before.mode);
    EXPECT_EQ(again->roles, before.roles);
    EXPECT_EQ(again->parallel_workers, before.parallel_workers);
  }
}

TEST_F(SavedConfigTest, WhatTheCommandLineSaysWins) {
  save_config(folder_, parse({"--alone", "--preset", "long", "--seed", "33"}), "");
  const auto saved = saved_options(folder_);
  ASSERT_TRUE(saved);
  const Options now =
      parse({"--parallel-workers", "3", "env.stop_value=200", "policy.nstep=2"}, *saved);
  EXPECT_EQ(now.mode, Mode::kJob);
  EXPECT_EQ(now.parallel_workers, 3);
  EXPECT_EQ(now.config.seed, 33);
  EXPECT_EQ(now.config.exp_name, "cartpole_dqn_seed33");
  EXPECT_THAT(differences(saved->config, now.config),
              ElementsAre("env.stop_value: 200, was 475", "policy.nstep: 2, was 5"));
  EXPECT_EQ(parse({"--alone"}, now).mode, Mode::kAlone);
  EXPECT_EQ(parse({"--roles", "replay,learner,collector,evaluator"}, now).parallel_workers, 0);
}

TEST_F(SavedConfigTest, HasEveryKeyTheCommandsAndTheVersion) {
  const Options options = parse({});
  save_config(folder_, options, command_line("bin/cartpole_dqn", {"exp_name=it's", "a b", ""}));
  save_config(folder_, options, "cartpole_dqn --run-folder r");
  const json::Value saved = file();
  EXPECT_EQ(saved.string_at({"version"}), DIVISI_VERSION);
  EXPECT_EQ(json::print(*saved.find("commands")),
            R"(["bin/cartpole_dqn 'exp_name=it'\\''s' 'a b' ''","cartpole_dqn --run-folder r"])");
  for (const auto& [key, value] : options.config.entries()) {
    EXPECT_NE(saved.find("config")->find(key), nullptr) << key;
  }
}

TEST_F(SavedConfigTest, AFileThatCannotBeReadIsNamed) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"{", "end"},
           {"{}", "there is no \"config\" in it"},
           {R"({"config": {"policy.nstepp": 3}})", "did you mean 'policy.nstep'"},
           {R"({"config": {}, "processes": ["--alon"]})", "did you mean '--alone'"}}) {
    std::ofstream(folder_.config()) << text;
    EXPECT_THAT([&] { saved_options(folder_); },
                ThrowsMessage<divisi::UsageError>(
                    AllOf(HasSubstr(folder_.config()), HasSubstr(why), HasSubstr("mend it"))));
  }
}

TEST(RunFolderOfTest, TheLastOneCounts) {
  EXPECT_EQ(run_folder_of({}), "");
  EXPECT_EQ(run_folder_of({"--run-folder"}), "");
  EXPECT_EQ(run_folder_of({"--run-folder", "a", "--alone", "--run-folder", "b"}), "b");
}

}  // namespace
}  // namespace cartpole
