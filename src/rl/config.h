// DqnConfig: everything a DQN run can be told. The defaults are those of DI-engine's
// cartpole_dqn_config.py, and so are the names of the keys.
//
//   DqnConfig config;
//   config.load_json(text, "my.json");                  // nested or dotted keys
//   config.set("policy.learn.batch_size", "128");       // as on the command line
//
// A key that does not exist, or a value that is none, is a UsageError that names it, and the
// nearest right name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::rl {

struct DqnConfig {
  std::string exp_name = "cartpole_dqn_seed0";
  std::int64_t seed = 0;

  std::string env_name = "CartPole-v1";
  int collector_env_num = 8;
  int evaluator_env_num = 5;
  int n_evaluator_episode = 5;
  double stop_value = 195;

  std::vector<int> hidden = {128, 128, 64};
  bool dueling = true;
  int nstep = 1;
  double discount = 0.97;
  bool double_q = true;
  bool priority = false;

  int batch_size = 64;
  double learning_rate = 0.001;
  int update_per_collect = 3;
  int target_update_freq = 100;
  int publish_freq = 120;  // updates between two broadcasts of the weights

  int n_sample = 8;                // transitions of a collect in one process
  int n_sample_remote = 64;        // of one message, where the replay is in another process
  std::int64_t max_staleness = 0;  // collects with one set of weights; 0: no bound

  int eval_freq = 40;  // updates between two evaluations

  std::string eps_type = "exp";
  double eps_start = 0.95;
  double eps_end = 0.1;
  std::int64_t eps_decay = 10'000;

  std::int64_t replay_buffer_size = 20'000;
  double samples_per_insert = 24;  // batch_size * update_per_collect / n_sample; 0: no limit

  std::int64_t max_env_step = 1'000'000;
  double checkpoint_seconds = 1;

  void set(std::string_view key, std::string_view value);
  // `origin` is named in errors.
  void load_json(std::string_view text, const std::string& origin);
  // Throws UsageError for values that do not go together.
  void check() const;

  // As load_json() takes it: all keys, in the order below.
  std::string to_json() const;
  // All keys with their values, in the order above, as set() takes them.
  std::vector<std::pair<std::string, std::string>> entries() const;
};

}  // namespace divisi::rl
