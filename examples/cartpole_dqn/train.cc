#include "train.h"

#include "divisi/checkpoint.h"
#include "divisi/divisi.h"
#include "divisi/exchange.h"
#include "divisi/writer.h"
#include "learner_log.h"
#include "options.h"
#include "rl/middleware.h"
#include "rl/pace.h"
#include "rl/saved_file.h"
#include "run_folder.h"
#include "saved_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>

namespace cartpole {

using divisi::task;
namespace rl = divisi::rl;

namespace {

constexpr std::string_view kCheckpointKind = "dqn";

using Roles = std::set<std::string>;

// Node 0 learns and holds the replay, node 1 evaluates, the others collect; with two nodes the
// second collects, with one it does everything.
Roles roles_by_node_id(int node, int nodes) {
  if (nodes <= 1) return {};
  if (node == 0)
    return nodes == 2 ? Roles{"replay", "learner", "evaluator"} : Roles{"replay", "learner"};
  return node == 1 && nodes > 2 ? Roles{"evaluator"} : Roles{"collector"};
}

// Started by ditask there is no list: it does not pass arguments.
bool is_listed(const Options& options) {
  return !options.run_folder.empty() && options.parallel_workers == 0;
}

// None: all roles, in one process.
Roles roles_of(const Options& options, const divisi::Parallel& router) {
  if (!router.is_active() || options.mode == Mode::kAlone) return {};
  if (!options.role.empty()) return {options.role};
  Roles labelled;
  for (const char* const role : {"replay", "learner", "collector", "evaluator"}) {
    if (router.labels().contains(role)) labelled.insert(role);
  }
  if (!labelled.empty()) return labelled;
  const auto node = static_cast<std::size_t>(router.node_id());
  if (is_listed(options) && node < options.roles.size()) return {options.roles[node]};
  return roles_by_node_id(router.node_id(), router.n_parallel_workers());
}

// How many there are at least: of a job whose processes are started by hand, or labelled, one.
int least_collectors(const Options& options, const divisi::Parallel& router) {
  if (options.mode == Mode::kNode || !router.labels().empty()) return 1;
  if (is_listed(options)) return collectors(options);
  return std::max(1, router.n_parallel_workers() - 2);
}

rl::NetworkShape shape_of(const rl::DqnConfig& config, const rl::VectorEnv& env) {
  return {.observation_size = env.observation_size(),
          .action_count = env.action_count(),
          .hidden = config.hidden,
          .dueling = config.dueling};
}

// One process of the run. Its members are what the middleware refer to.
class Node {
 public:
  // `sink` and `source`: where the replay is in another process.
  Node(const Options& options, std::shared_ptr<rl::ReplaySink> sink,
       std::shared_ptr<rl::ReplaySource> source)
      : options_(options),
        config_(options.config),
        pace_(rl::pace_of(config_)),
        folder_{options.run_folder.empty() ? open_run_folder(config_.exp_name, options.resume).path
                                           : options.run_folder},
        router_(task.router()),
        alone_(!router_.is_active() || task.roles().empty()),
        seed_(static_cast<std::uint64_t>(config_.seed)),
        own_seed_(1000 * seed_ + static_cast<std::uint64_t>(std::max(0, router_.node_id()))),
        env_(rl::make_env(config_.env_name, has("collector") ? config_.collector_env_num : 1,
                          own_seed_)),
        shape_(shape_of(config_, *env_)),
        observation_size_(env_->observation_size()),
        sink_(std::move(sink)),
        source_(std::move(source)) {
    // A run that ditask started has no launcher of ours to do it.
    if (has("learner") && !std::filesystem::exists(folder_.config())) {
      save_config(folder_, options, {});
    }
    if (has("replay")) make_replay();
    if (has("learner")) make_learner();
    if (has("collector") || has("evaluator")) make_players();
  }

  void run() {
    use_middleware();
    try {
      task.run();
    } catch (const divisi::UsageError&) {
      throw;
    } catch (const divisi::Error& error) {
      if (!learner_) throw;
      const bool saved = std::filesystem::exists(folder_.latest());
      throw divisi::Error(error.code(),
                          fmt::format("{}; {}", error.what(),
                                      saved ? "the last good checkpoint is " + folder_.latest()
                                            : "there is no checkpoint yet"));
    }
    // The end may have come after the savers of the last iteration.
    if (learner_ && learner_->train_iter() != saved_iter_) save_latest();
    if (replay_ && replay_->totals().inserted != saved_rows_) save_replay();
  }

 private:
  bool has(std::string_view role) const { return task.has_role(role); }
  bool has_only_replay() const { return !alone_ && task.roles() == Roles{"replay"}; }
  int batches() const { return alone_ ? config_.update_per_collect : rl::kBatchesOfAnAnswer; }

  void make_replay() {
    const rl::GiveUp give_up = alone_
                                   ? rl::GiveUp([] { return true; })  // nobody else would fill it
                                   : rl::GiveUp([] { return task.finish(); });
    rl::RateLimit limit = pace_.limit;
    if (alone_) limit.samples_per_insert = 0;  // they take turns
    replay_ = std::make_unique<rl::ReplayServer>(
        rl::ReplayServerOptions{.buffer = {.capacity = config_.replay_buffer_size,
                                           .observation_size = observation_size_,
                                           .action_count = shape_.action_count,
                                           .prioritised = config_.priority},
                                .limit = limit,
                                .seed = own_seed_,
                                .checkpoint = folder_.replay()});
    if (router_.is_active()) replay_->serve(router_);
    const auto local =
        std::make_shared<rl::LocalReplay>(*replay_, batches() * config_.batch_size, give_up);
    sink_ = local;
    source_ = local;
  }

  void make_learner() {
    learner_ = std::make_unique<rl::DqnLearner>(
        rl::DqnOptions{.shape = shape_,
                       .discount = config_.discount,
                       .nstep = config_.nstep,
                       .double_q = config_.double_q,
                       .learning_rate = config_.learning_rate,
                       .target_update_freq = config_.target_update_freq},
        seed_);
    const auto saved = rl::load_file<std::string, rl::StateDict>(folder_.latest(), kCheckpointKind);
    if (!saved) return;
    const auto& [shape, state] = *saved;
    if (shape != shape_.to_string()) {
      throw divisi::UsageError(
          fmt::format("{}: a network {}, this run has {}: give the same "
                      "policy.model keys, or another --run-folder",
                      folder_.latest(), shape, shape_.to_string()));
    }
    learner_->load_full(state);
  }

  void make_players() {
    if (!learner_) received_ = std::make_unique<rl::QNetwork>(shape_, seed_);
    if (has("collector")) {
      player_ = std::make_unique<rl::Collector>(
          std::move(env_),
          rl::CollectorOptions{
              .nstep = config_.nstep, .discount = config_.discount, .seed = own_seed_});
    }
    if (has("evaluator")) {
      eval_env_ = rl::make_env(config_.env_name,
                               std::min(config_.evaluator_env_num, config_.n_evaluator_episode),
                               own_seed_ + 1);
    }
  }

  rl::QNetwork& network() { return learner_ ? learner_->network() : *received_; }

  void save_latest() {
    rl::save_file(folder_.latest(), kCheckpointKind, shape_.to_string(), learner_->full_state());
    saved_iter_ = learner_->train_iter();
  }
  void save_replay() {
    saved_rows_ = replay_->totals().inserted;  // at least
    replay_->save();
  }

  // The weights: from the learner to everybody else.
  divisi::Middleware weights() {
    if (alone_ || has_only_replay()) return divisi::VoidMiddleware{};
    version_ = std::make_shared<divisi::ModelVersion>();
    if (learner_) {
      return divisi::periodical_model_exchanger(
          {.state = [this] { return learner_->network().state(); }},
          {.mode = divisi::ModelExchangeMode::kSend,
           .period = pace_.answers,
           .version = [this] { return learner_->train_iter(); },
           .in_use = version_,
           // Collectors wait for weights before they bring the rows that the learner waits for.
           .send_at_start = true});
    }
    // Collectors go on with what they have, evaluators only with something new.
    const std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();
    const std::int64_t stale =
        has("collector") ? (pace_.collects > 0 ? pace_.collects : unbounded) : 1;
    return divisi::periodical_model_exchanger(
        {.load = [this](const rl::StateDict& state) { received_->load(state); }},
        {.mode = divisi::ModelExchangeMode::kReceive,
         .stale_toleration = stale,
         .in_use = version_});
  }

  void use_middleware() {
    const rl::EpsilonSchedule schedule(config_.eps_type, config_.eps_start, config_.eps_end,
                                       config_.eps_decay);
    const auto interval = std::chrono::duration<double>(config_.checkpoint_seconds);
    task.use(weights());
    if (player_) {
      task.use(rl::explorer(schedule, *sink_));
      task.use(
          rl::collector(*player_, network(), alone_ ? config_.n_sample : config_.n_sample_remote));
      task.use(rl::pusher(*player_, *sink_));
    }
    if (learner_) {
      task.use(rl::trainer(*learner_, *source_, config_.batch_size, config_.priority));
    }
    if (eval_env_) {
      task.use(rl::evaluator(
          {.env = *eval_env_,
           .network = network(),
           .episodes = config_.n_evaluator_episode,
           .eval_freq = config_.eval_freq,
           .seed = own_seed_ + 1,
           .train_iter = [this] { return learner_ ? learner_->train_iter() : version_->id(); }}));
    }
    task.use(rl::evaluation_receiver());
    task.use(rl::stop_value_checker(config_.stop_value));
    if (learner_) {
      task.use(divisi::termination_checker({.max_env_step = config_.max_env_step}));
      task.use(rl::periodic_saver("learner", interval, [this] { save_latest(); }));
      task.use(divisi::ckpt_saver(
          [this](const std::string& path) {
            rl::write_file(path, kCheckpointKind, shape_.to_string(), learner_->full_state());
          },
          folder_.checkpoints()));
      const auto writer = divisi::DistributedWriter::get_instance(folder_.path);
      writer->plugin(router_, true);
      task.use(learner_log({.folder = folder_,
                            .stop_value = config_.stop_value,
                            .max_env_step = config_.max_env_step,
                            .schedule = schedule,
                            .sent = alone_ ? nullptr : version_,
                            .metrics = writer,
                            .seconds_before = seconds_logged(folder_)}));
    }
    if (replay_) {
      // In this order: what was inserted until the end is saved.
      if (has_only_replay()) task.use(rl::idler(interval));
      task.use(rl::periodic_saver("replay", interval, [this] { save_replay(); }));
    }
  }

  const Options& options_;
  const rl::DqnConfig& config_;
  const rl::Pace pace_;
  const RunFolder folder_;
  divisi::Parallel& router_;
  const bool alone_;
  const std::uint64_t seed_;
  const std::uint64_t own_seed_;
  std::unique_ptr<rl::VectorEnv> env_;
  const rl::NetworkShape shape_;
  const int observation_size_;

  std::unique_ptr<rl::ReplayServer> replay_;
  std::shared_ptr<rl::ReplaySink> sink_;      // of a collector
  std::shared_ptr<rl::ReplaySource> source_;  // of a learner
  std::unique_ptr<rl::DqnLearner> learner_;
  std::unique_ptr<rl::QNetwork> received_;  // the learner's weights, where it is elsewhere
  std::unique_ptr<rl::Collector> player_;
  std::unique_ptr<rl::VectorEnv> eval_env_;
  std::shared_ptr<divisi::ModelVersion> version_;
  std::int64_t saved_iter_ = -1;  // of latest.ckpt
  std::int64_t saved_rows_ = -1;  // of replay.ckpt
};

}  // namespace

void train(const std::vector<std::string>& args) {
  const Options options = parse(args);
  auto& router = task.router();
  const Roles roles = roles_of(options, router);
  const bool alone = !router.is_active() || roles.empty();
  if (!alone) rl::check_pace(options.config, least_collectors(options, router));
  const auto env = rl::make_env(options.config.env_name, 1, 0);
  const auto give_up = [] { return task.finish(); };

  std::shared_ptr<rl::RemoteSink> sink;
  std::shared_ptr<rl::RemoteSource> source;
  if (roles.contains("collector") && !roles.contains("replay")) {
    sink = std::make_shared<rl::RemoteSink>(router, env->observation_size(), give_up);
    if (!sink->greet()) return;
  }
  if (roles.contains("learner") && !roles.contains("replay")) {
    source = std::make_shared<rl::RemoteSource>(
        router,
        rl::SampleShape{.batch_size = options.config.batch_size,
                        .batches = rl::kBatchesOfAnAnswer,
                        .observation_size = env->observation_size(),
                        .action_count = env->action_count()},
        give_up);
    if (!source->greet()) return;
  }

  const auto running = task.start({.ctx = std::make_shared<divisi::OnlineRLContext>()});
  for (const auto& role : roles) task.add_role(role);
  Node(options, sink, source).run();
}

}  // namespace cartpole
