// VectorEnv: n environments of one kind, stepped together, each begun anew when its episode ends.
//
//   auto env = make_env("CartPole-v1", 8, seed);
//   std::vector<int> actions(8);
//   choose(env->observations(), actions);
//   const EnvStep& step = env->step(actions);    // what the actions led to
//   env->observations();                         // where the next actions are taken
//
// The two differ where an episode ended: step.next_observations has its last observation,
// observations() the first of the next episode.
//
// One object belongs to one thread. Dynamics, limits and rewards are Gymnasium's; the random
// numbers are our own, one stream for each environment, so that environment i of a seed begins
// the same episodes however many stand beside it. After construction nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace divisi::rl {

// What one step of all environments led to.
struct EnvStep {
  std::vector<float> next_observations;  // n rows, as they were before a new episode began
  std::vector<float> rewards;
  std::vector<std::uint8_t> terminated;  // 1: the episode ended in a final state
  std::vector<std::uint8_t> truncated;   // 1: the time limit ended it (both may be 1)
};

class VectorEnv {
 public:
  virtual ~VectorEnv() = default;
  VectorEnv(const VectorEnv&) = delete;
  VectorEnv& operator=(const VectorEnv&) = delete;

  const std::string& name() const noexcept { return traits_.name; }
  int size() const noexcept { return size_; }
  int observation_size() const noexcept { return traits_.observation_size; }
  int action_count() const noexcept { return traits_.action_count; }  // 0: continuous
  int action_size() const noexcept { return traits_.action_size; }    // numbers in one action
  int max_episode_steps() const noexcept { return traits_.max_episode_steps; }
  // The largest absolute value of a continuous action that makes a difference.
  float action_bound() const noexcept { return traits_.action_bound; }

  // Begins new episodes everywhere.
  void reset(std::uint64_t seed);

  // n rows of observation_size() numbers: where the next actions are taken.
  std::span<const float> observations() const noexcept { return observations_; }

  // Takes one action in each environment. The result is valid until the next call. Throws
  // UsageError, before anything moves, for a wrong number of actions, an action out of range
  // or the wrong kind of action. A continuous action beyond its bound is clipped.
  const EnvStep& step(std::span<const int> actions);
  const EnvStep& step(std::span<const float> actions);

  // The physical state of environment i, in Gymnasium's order; setting it begins an episode.
  std::vector<double> state(int i) const;
  void set_state(int i, std::span<const double> values);

 protected:
  struct Traits {
    std::string name;
    int observation_size;
    int state_size;
    int action_count;
    int action_size;
    int max_episode_steps;
    float action_bound;
  };

  VectorEnv(Traits traits, int n);

  // The states as columns: variable v of all environments at column(v).
  double* column(int variable) noexcept {
    return states_.data() + static_cast<std::size_t>(variable) * static_cast<std::size_t>(size_);
  }
  const double* column(int variable) const noexcept {
    return states_.data() + static_cast<std::size_t>(variable) * static_cast<std::size_t>(size_);
  }
  EnvStep& result() noexcept { return step_; }

 private:
  // Moves all states and fills result() but for `truncated`. Only the one of the right kind is
  // called, with checked actions.
  virtual void advance_discrete(std::span<const int> actions);
  virtual void advance_continuous(std::span<const float> actions);
  // Draws the first state of an episode.
  virtual void draw_state(int i, std::uint64_t& random) = 0;
  virtual void observe(int i, std::span<float> observation) const = 0;

  void check_count(std::size_t actions) const;
  void check_index(int i) const;
  void begin_episode(int i);
  void observe_row(int i);
  void end_episodes();

  const Traits traits_;
  const int size_;
  std::vector<double> states_;
  std::vector<float> observations_;
  std::vector<std::int32_t> steps_;     // taken in the current episode
  std::vector<std::uint64_t> streams_;  // of random numbers, one for each environment
  EnvStep step_;
};

// Throws UsageError for a name that is not one of env_names(), or n below 1.
std::unique_ptr<VectorEnv> make_env(const std::string& name, int n, std::uint64_t seed);
std::vector<std::string> env_names();

}  // namespace divisi::rl
