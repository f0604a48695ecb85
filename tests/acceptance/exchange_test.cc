// The exchangers between real nodes (spec 7.2 to 7.4, 9.5).
#include "divisi/exchange.h"

#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <thread>

namespace {

using divisi::Context;
using divisi::Model;
using divisi::ModelExchangeMode;
using divisi::ModelVersion;
using divisi::OnlineRLContext;
using divisi::only_remote;
using divisi::Parallel;
using divisi::Role;
using divisi::task;
using divisi::Tensor;
using divisi::Value;
using jobs::Arguments;
using jobs::demand;
using jobs::Folder;
using jobs::Gathered;
using jobs::kSoon;
using jobs::node;
using jobs::workers;
using namespace std::chrono_literals;
using State = std::map<std::string, Tensor>;

divisi::StartOptions online() {
  return {.ctx = std::make_shared<OnlineRLContext>()};
}

// --- A100, A114: contexts ---

void learner_and_collector(const Arguments& args) {
  const auto running = task.start(online());
  task.add_role(node() == 0 ? Role::kLearner : Role::kCollector);
  task.use(divisi::context_exchanger({.skip_n_iter = 1}));
  std::int64_t iterations = 0;
  if (node() == 0) {
    task.use([&](OnlineRLContext& ctx) {
      demand(!task.finish() || ctx.trajectories, "only the end comes without data");
      demand(ctx.trajectories.get<std::vector<std::int64_t>>().size() == 2, "2 trajectories");
      demand(ctx.trajectory_end_idx.size() == 4, "4 end indices");
      demand(ctx.episodes.get<std::vector<Value>>().size() == 8, "8 episodes");
      ++iterations;
      demand(ctx.env_step == iterations && ctx.env_episode == iterations, "both counters go on");
      divisi::suspend();
      ++ctx.train_iter;
    });
  } else {
    task.use([&](OnlineRLContext& ctx) {
      demand(ctx.total_step == 0 || ctx.train_iter > 0, "the learner's train_iter from step 1 on");
      ++iterations;
      divisi::suspend();
      ctx.trajectories = std::vector<std::int64_t>{0, 1};
      ctx.trajectory_end_idx = {0, 1, 2, 3};
      ctx.episodes = std::vector<Value>(8);
      ++ctx.env_step;
      ++ctx.env_episode;
    });
  }
  task.run(3);
  jobs::note(args.at(0), std::to_string(node()), std::to_string(iterations));
}
DIVISI_MAIN(learner_and_collector)

TEST(ExchangeTest, A100_learner_and_collector_exchange_their_contexts) {
  const Folder folder;
  Parallel::runner(workers(2))(learner_and_collector, {folder.path()});
  // The collector's last payload is sent by its third iteration, for which it needs two of the
  // learner's.
  EXPECT_EQ(jobs::read_note(folder.path(), "1"), "3");
  EXPECT_GE(std::stoi(jobs::read_note(folder.path(), "0").value()), 2);
}

// The collector goes away while the learner waits for its data.
void a_learner_alone() {
  const auto running = task.start(online());
  task.add_role(node() == 0 ? Role::kLearner : Role::kCollector);
  if (node() == 0) {
    task.use(divisi::context_exchanger());
    task.use([](Context&) { demand(task.finish(), "it waits until the end"); });
    task.emit("waiting", only_remote);
    task.run();
  } else {
    task.wait_for("waiting", {.timeout = kSoon, .ignore_timeout = false});
  }
}
DIVISI_MAIN(a_learner_alone)

TEST(ExchangeTest, D30_a_learner_without_data_ends_with_the_job) {
  Parallel::runner(workers(2))(a_learner_alone);
}

TEST(ExchangeTest, A114_without_a_job_both_are_void) {
  const auto running = task.start(online());
  task.add_role(Role::kLearner);
  EXPECT_TRUE(divisi::context_exchanger().is_void());
  EXPECT_TRUE(divisi::model_exchanger({}).is_void());
  task.use(divisi::context_exchanger());
  EXPECT_EQ(task.middleware_count(), 0u);
}

// --- models: y = weight * x ---

struct Line {
  double weight = 1;
  std::vector<double> padding = std::vector<double>(4096);  // travels beside the message

  double operator()(double x) const { return weight * x; }
  Model model() {
    return {.state =
                [this] {
                  return State{
                      {"weight", Tensor::copy_of<double>({}, std::span<const double>(&weight, 1))},
                      {"padding", Tensor::copy_of<double>({4096}, padding)}};
                },
            .load =
                [this](const State& state) {
                  demand(state.at("padding").view<double>()[7] == padding[7], "all of it");
                  weight = state.at("weight").view<double>()[0];
                }};
  }
};

void learn_and_predict() {
  Line line;
  line.padding[7] = 0.5;
  const auto running = task.start(online());
  task.add_role(node() == 0 ? Role::kLearner : Role::kCollector);
  task.use(divisi::model_exchanger(line.model(), {.timeout = kSoon}));
  if (node() == 0) {
    task.use([&](Context&) { line.weight += 1; });
    task.run();
    return;
  }
  double before = line(2);
  task.use([&](Context& ctx) {
    const double prediction = line(2);
    demand(ctx.total_step == 0 || prediction > before, "a newer model in each step from 1 on");
    before = prediction;
  });
  task.run(10);
}
DIVISI_MAIN(learn_and_predict)

TEST(ExchangeTest, A102_the_collectors_predictions_change_from_step_1_on) {
  Parallel::runner(workers(2))(learn_and_predict);
}

// Nobody keeps them in step: each takes 0.3 s for a step of its own.
void every_third_model_in_free_steps() {
  Line line;
  const auto version = std::make_shared<ModelVersion>();
  const auto running = task.start();
  if (node() == 0) {
    task.use(divisi::periodical_model_exchanger(line.model(), {.period = 3}));
    task.use([&](Context&) {
      line.weight += 1;
      std::this_thread::sleep_for(300ms);
    });
    task.run();  // until the receiver ends: one that is slow is never left without a sender
    return;
  }
  task.use(divisi::periodical_model_exchanger(line.model(), {.mode = ModelExchangeMode::kReceive,
                                                             .period = 3,
                                                             .stale_toleration = 3,
                                                             .timeout = 2 * kSoon,
                                                             .in_use = version}));
  std::map<std::int64_t, int> steps_of;
  task.use([&](Context&) {
    demand(++steps_of[version->id()] <= 3, "no model serves more than 3 steps");
    demand(version->id() % 3 == 0 || version->id() == -1, "every third");
    demand(line.weight == (version->id() == -1 ? 1 : static_cast<double>(version->id() + 2)),
           "the id is that of the model in use");
    std::this_thread::sleep_for(300ms);
  });
  task.run(8);
  demand(task.ctx().total_step == 7, "all eight steps ran");
}
DIVISI_MAIN(every_third_model_in_free_steps)

TEST(ExchangeTest, A103_a_model_serves_no_more_steps_than_tolerated) {
  Parallel::runner(workers(2))(every_third_model_in_free_steps);
}

// Sender and receiver go step by step, so what the receiver uses is known for every step: ids 0, 3
// and 6 are sent after its steps 0, 3 and 6.
void every_third_model(const Arguments& args) {
  constexpr int kSteps = 8;
  Line line;
  const auto version = std::make_shared<ModelVersion>();
  const auto running = task.start();
  if (node() == 0) {
    Gathered<std::int64_t> steps;
    task.on("stepped", [&](std::int64_t step) { steps.add(step); });
    task.use(divisi::periodical_model_exchanger(line.model(), {.period = 3}));
    task.use([&](Context& ctx) {
      line.weight += 1;
      demand(steps.wait_for(static_cast<std::size_t>(ctx.total_step) + 1), "the receiver goes on");
    });
    task.run(kSteps);
    task.wait_for("enough", {.timeout = kSoon, .wake_on_finish = true});
    return;
  }
  task.use(divisi::periodical_model_exchanger(line.model(), {.mode = ModelExchangeMode::kReceive,
                                                             .stale_toleration = 3,
                                                             .timeout = kSoon,
                                                             .in_use = version}));
  std::string used;
  task.use([&](Context& ctx) {
    used += std::to_string(version->id()) + " ";
    demand(ctx.total_step == 0 || version->iterations() <= 3, "no model serves more than 3 steps");
    demand(ctx.total_step == 0 || line.weight == static_cast<double>(version->id() + 2),
           "the id is that of the model in use");
    divisi::suspend();
    task.emit("stepped", only_remote, ctx.total_step);
  });
  task.run(kSteps);
  jobs::note(args.at(0), "used", used);
}
DIVISI_MAIN(every_third_model)

TEST(ExchangeTest, The_model_of_each_step_is_the_last_that_was_sent) {
  const Folder folder;
  Parallel::runner(workers(2))(every_third_model, {folder.path()});
  EXPECT_EQ(jobs::read_note(folder.path(), "used"), "-1 0 0 0 3 3 3 6 ");
}

// --- nodes that come again ---

// The sender sends one model only; the receiver's second life gets it all the same.
void receiver_dies_once(const Arguments& args) {
  Line line;
  const auto version = std::make_shared<ModelVersion>();
  const auto running = task.start();
  if (node() == 0) {
    task.use(divisi::periodical_model_exchanger(line.model(), {.version = [] { return 41; }}));
    task.run(1);
    jobs::wait_for_note(args.at(0), "again");
    return;
  }
  task.use(divisi::periodical_model_exchanger(
      line.model(), {.mode = ModelExchangeMode::kReceive,
                     .stale_toleration = 2,  // the one model is there in step 0 or in step 1
                     .timeout = kSoon,
                     .in_use = version}));
  task.use([&](Context& ctx) {
    if (ctx.total_step == 0) return;
    demand(version->id() == 41, "the model of the sender");
    if (jobs::read_note(args.at(0), "once")) return;
    jobs::note(args.at(0), "once", "");
    ::raise(SIGKILL);
  });
  task.run(2);
  jobs::note(args.at(0), "again", "");
}
DIVISI_MAIN(receiver_dies_once)

TEST(ExchangeTest, A_receiver_that_comes_back_gets_the_last_model_at_once) {
  const Folder folder;
  auto options = workers(2);
  options.worker_lost = "restart";
  Parallel::runner(options)(receiver_dies_once, {folder.path()});
  EXPECT_TRUE(jobs::read_note(folder.path(), "again"));
}

// The second life of the sender counts from 0 again.
void sender_dies_once(const Arguments& args) {
  Line line;
  const auto version = std::make_shared<ModelVersion>();
  const auto running = task.start();
  if (node() == 0) {
    const bool first_life = !jobs::read_note(args.at(0), "died");
    task.use(divisi::periodical_model_exchanger(line.model(), {}));
    task.use([&](Context& ctx) {
      if (!first_life && ctx.total_step > 0) {
        task.wait_for("enough", {.timeout = kSoon, .wake_on_finish = true});
      } else if (first_life && jobs::read_note(args.at(0), "seen")) {
        jobs::note(args.at(0), "died", "");
        ::raise(SIGKILL);
      }
    });
    task.run();
    return;
  }
  task.use(divisi::periodical_model_exchanger(
      line.model(), {.mode = ModelExchangeMode::kReceive, .timeout = kSoon, .in_use = version}));
  std::int64_t highest = -1;
  task.use([&](Context&) {
    if (version->id() < highest) {
      jobs::note(args.at(0), "unfrozen", std::to_string(version->id()));
      task.set_finish();
    }
    highest = std::max(highest, version->id());
    if (highest >= 3) jobs::note(args.at(0), "seen", "");
  });
  task.run();
}
DIVISI_MAIN(sender_dies_once)

TEST(ExchangeTest, A_sender_that_counts_from_0_again_freezes_nobody) {
  const Folder folder;
  auto options = workers(2);
  options.worker_lost = "restart";
  Parallel::runner(options)(sender_dies_once, {folder.path()});
  EXPECT_EQ(jobs::read_note(folder.path(), "unfrozen"), "0");
}

// Begun anew inside its process, which the router does not see.
void receiver_recovers() {
  Line line;
  const auto running = task.start();
  auto& router = task.router();
  if (node() == 0) {
    task.use(divisi::periodical_model_exchanger(line.model(), {.version = [] { return 7; }}));
    task.run(1);
    // Stopping would finish the receiver.
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
    return;
  }
  const auto version = std::make_shared<ModelVersion>();
  task.use(divisi::periodical_model_exchanger(
      line.model(), {.mode = ModelExchangeMode::kReceive,
                     .stale_toleration = 2,  // the one model is there in step 0 or in step 1
                     .timeout = kSoon,
                     .in_use = version}));
  task.use([&](Context& ctx) {
    if (ctx.total_step == 0) return;
    demand(version->id() == 7, "the model of the sender");
    if (router.retries() == 0) throw std::runtime_error("once more");
  });
  task.run(2);
  task.emit("enough", only_remote);
}
DIVISI_MAIN(receiver_recovers)

TEST(ExchangeTest, A_receiver_that_is_begun_anew_in_place_asks_for_the_last_model) {
  auto options = workers(2);
  options.auto_recover = true;
  options.max_retries = 1;
  Parallel::runner(options)(receiver_recovers);
}

}  // namespace
