// The C++ side of a training job whose other node is written in Python: `learner` or `collector`.
// And `write`, which fills an event file for TensorBoard. Folders are relative to the working
// directory.
#include "divisi/divisi.h"
#include "divisi/exchange.h"
#include "divisi/writer.h"

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using divisi::OnlineRLContext;
using divisi::task;
using divisi::Tensor;

constexpr auto kSoon = std::chrono::seconds(60);
constexpr int kSteps = 5;

struct Transition {
  Tensor obs;
  std::int64_t action = 0;
  double reward = 0;
};
DIVISI_FIELDS(Transition, obs, action, reward)

void demand(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

struct Weights {
  std::vector<double> w = std::vector<double>(4);

  divisi::Model model() {
    return {.state =
                [this] {
                  return std::map<std::string, Tensor>{{"w", Tensor::copy_of<double>({4}, w)}};
                },
            .load =
                [this](const std::map<std::string, Tensor>& state) {
                  const auto elements = state.at("w").view<double>();
                  w.assign(elements.begin(), elements.end());
                }};
  }
};

// Takes transitions of a Python collector and sends it the model.
void learner() {
  const auto running = task.start({.ctx = std::make_shared<OnlineRLContext>()});
  demand(task.router().wait_for_peers(1, kSoon), "the collector comes");
  task.add_role(divisi::Role::kLearner);
  const auto writer = divisi::DistributedWriter::get_instance("log");
  writer->plugin(task.router(), true);
  Weights weights;
  task.use(divisi::context_exchanger({.timeout = kSoon}));
  task.use(divisi::model_exchanger(weights.model()));
  std::int64_t seen = 0;
  task.use([&](OnlineRLContext& ctx) {
    if (!ctx.trajectories) return;  // the collector has ended
    for (const auto& each : ctx.trajectories.get<std::vector<Transition>>()) {
      demand(each.obs.shape == std::vector<std::int64_t>{3}, "an observation of 3");
      demand(each.obs.view<float>()[0] == static_cast<float>(each.action), "its elements");
      demand(each.reward == 0.5, "a reward");
      ++seen;
    }
    demand(ctx.trajectory_end_idx == std::vector<std::int64_t>{1}, "an end index");
    demand(ctx.env_step == seen, "env_step counts the transitions");
    divisi::suspend();
    ++ctx.train_iter;
    for (double& w : weights.w) w += 1;
    writer->add_scalar("cpp/train_iter", static_cast<double>(ctx.train_iter), ctx.train_iter);
  });
  task.run();
  std::printf("learner saw %d transitions\n", static_cast<int>(seen));
}
DIVISI_MAIN_AS("learner", learner)

// The other way round: a Python learner sends numbered models.
void collector() {
  const auto running = task.start({.ctx = std::make_shared<OnlineRLContext>()});
  demand(task.router().wait_for_peers(1, kSoon), "the learner comes");
  task.add_role(divisi::Role::kCollector);
  divisi::DistributedWriter writer("log.cpp");
  writer.plugin(task.router(), false);
  Weights weights;
  const auto version = std::make_shared<divisi::ModelVersion>();
  task.use(divisi::context_exchanger({.timeout = kSoon}));
  task.use(divisi::periodical_model_exchanger(weights.model(),
                                              {.mode = divisi::ModelExchangeMode::kReceive,
                                               .event_name = "weights",
                                               .timeout = kSoon,
                                               .in_use = version}));
  std::int64_t before = -1;
  task.use([&](OnlineRLContext& ctx) {
    if (ctx.total_step > 0) {
      demand(ctx.train_iter > 0, "the learner's train_iter");
      demand(version->id() > before, "a newer model in each step");
      demand(weights.w[3] == static_cast<double>(version->id()) + 1, "the id is the model's");
    }
    before = version->id();
    const std::array<float, 3> obs{static_cast<float>(ctx.total_step)};
    divisi::suspend();
    ctx.trajectories = std::vector<Transition>{
        {Tensor::copy_of<float>({3}, obs), ctx.total_step, 0.5}, {{}, 0, 0}};
    ctx.trajectory_end_idx = {1};
    ctx.env_step += 2;
    writer.add_scalar("cpp/env_step", static_cast<double>(ctx.env_step), ctx.total_step);
    writer.add_histogram("cpp/weights", weights.w, ctx.total_step);
  });
  task.run(kSteps);
  std::printf("collector used model %d last\n", static_cast<int>(version->id()));
}
DIVISI_MAIN_AS("collector", collector)

void write() {
  divisi::TensorBoardWriter writer("log");
  for (int step = 0; step < 1000; ++step) writer.add_scalar("loss", 1.0 / (step + 1), step);
  writer.add_scalar("wörter/größe", -2.5, 7);
  writer.add_scalar("large step", 1, std::int64_t{1} << 40);
  writer.add_text("note", "**bold** ü", 3);
  const std::vector<double> values{-1, -1, 0, 0.5, 2, 1e300};
  writer.add_histogram("weights", values, 4);
}
DIVISI_MAIN_AS("write", write)

}  // namespace
