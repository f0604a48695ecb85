#include "learner_log.h"

#include "divisi/checkpoint.h"
#include "divisi/progress.h"
#include "divisi/task.h"
#include "divisi/trial.h"
#include "json/value.h"
#include "progress.h"
#include "rl/middleware.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>

namespace cartpole {

namespace json = divisi::json;
using divisi::OnlineRLContext;
using divisi::task;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class LearnerLog {
 public:
  explicit LearnerLog(LearnerLogOptions options)
      : options_(std::move(options)),
        file_(::open(options_.folder.log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                     0644)) {
    if (file_ < 0) fail();
  }
  ~LearnerLog() { ::close(file_); }
  LearnerLog(const LearnerLog&) = delete;
  LearnerLog& operator=(const LearnerLog&) = delete;

  void after_iteration(OnlineRLContext& ctx) {
    if (ctx.train_output.holds<divisi::rl::TrainOutput>()) {
      output_ = ctx.train_output.get<divisi::rl::TrainOutput>();
    }
    const bool evaluated = ctx.eval_value > -std::numeric_limits<double>::infinity();
    if (evaluated) write_evaluation(ctx);
    const bool solved = evaluated && ctx.eval_value >= options_.stop_value;
    const bool over = solved || ctx.env_step > options_.max_env_step;
    if (over || !begun_ || seconds_since(last_line_) >= 1) write_progress(ctx, solved);
    if (!over) return;
    write_result(ctx, solved);
    divisi::tune::set_result({{"stop", solved ? 1.0 : 0.0},
                              {"env_step", static_cast<double>(ctx.env_step)},
                              {"train_iter", static_cast<double>(ctx.train_iter)},
                              {"eval_value", ctx.last_eval_value}});
  }

 private:
  double now() const { return options_.seconds_before + seconds_since(start_); }

  json::Object common(const char* kind, const OnlineRLContext& ctx) const {
    return {{"kind", kind},
            {"seconds", now()},
            {"env_step", ctx.env_step},
            {"train_iter", ctx.train_iter}};
  }

  void write_evaluation(const OnlineRLContext& ctx) {
    auto line = common("eval", ctx);
    line.emplace_back("mean", ctx.eval_value);
    line.emplace_back("of_train_iter", ctx.last_eval_iter);
    write(line);
    options_.metrics->add_scalar("evaluator/return_mean", ctx.eval_value, ctx.env_step);
    divisi::tune::report(ctx.env_step, {{"eval_value", ctx.eval_value},
                                        {"env_step", static_cast<double>(ctx.env_step)}});
  }

  void write_progress(const OnlineRLContext& ctx, bool solved) {
    const double passed = seconds_since(last_line_);
    // A rate over the moment between two lines that follow each other says nothing.
    constexpr double kEnough = 0.2;
    if (begun_ && passed >= kEnough) {
      env_rate_ = static_cast<double>(ctx.env_step - last_env_step_) / passed;
      train_rate_ = static_cast<double>(ctx.train_iter - last_train_iter_) / passed;
    }
    if (!begun_ || passed >= kEnough) {
      last_line_ = Clock::now();
      last_env_step_ = ctx.env_step;
      last_train_iter_ = ctx.train_iter;
    }
    begun_ = true;
    const double eps = options_.schedule.at(ctx.env_step);
    auto line = common(solved ? "solved" : "progress", ctx);
    line.emplace_back("env_steps_per_second", env_rate_);
    line.emplace_back("updates_per_second", train_rate_);
    line.emplace_back("loss", output_.loss);
    line.emplace_back("mean_q", output_.mean_q);
    line.emplace_back("eps", eps);
    line.emplace_back("version", options_.sent ? options_.sent->id() : ctx.train_iter);
    line.emplace_back("nodes", nodes());
    write(line);
    report(ctx, solved);
    options_.metrics->add_scalar("learner/loss", output_.loss, ctx.env_step);
    options_.metrics->add_scalar("learner/mean_q", output_.mean_q, ctx.env_step);
    options_.metrics->add_scalar("learner/updates_per_second", train_rate_, ctx.env_step);
    options_.metrics->add_scalar("collector/eps", eps, ctx.env_step);
    options_.metrics->add_scalar("collector/env_steps_per_second", env_rate_, ctx.env_step);
  }

  // For kubectl, where this is a DIJob. The end is where the steps are spent, or earlier.
  void report(const OnlineRLContext& ctx, bool solved) const {
    divisi::Progress progress{.extra = {{"env_step", static_cast<double>(ctx.env_step)},
                                        {"updates_per_second", train_rate_},
                                        {"loss", output_.loss}}};
    if (env_rate_ > 0) progress.env_steps_per_second = env_rate_;
    if (ctx.last_eval_value > -std::numeric_limits<double>::infinity()) {
      progress.episode_return = ctx.last_eval_value;
    }
    const auto left = static_cast<double>(options_.max_env_step - ctx.env_step);
    if (solved || left <= 0) {
      progress.eta_seconds = 0;
    } else if (env_rate_ > 0) {
      progress.eta_seconds = left / env_rate_;
    }
    divisi::report_progress(progress);
  }

  static json::Array nodes() {
    const auto role_of = [](const std::set<std::string>& roles) {
      // A learner that also holds the replay is shown as the learner.
      return roles.empty() ? std::string("all roles")
                           : (roles.contains("learner") ? "learner" : *roles.begin());
    };
    const auto entry = [](int node, const std::string& role, bool up) {
      return json::Value(json::Object{{"node", node}, {"role", role}, {"up", up}});
    };
    std::map<int, json::Value> by_id;
    const auto& router = task.router();
    const int self = router.is_active() ? router.node_id() : 0;
    by_id.emplace(self, entry(self, role_of(task.roles()), true));
    if (router.is_active()) {
      for (const auto& peer : router.peers()) {
        by_id.emplace(peer.node_id,
                      entry(peer.node_id, role_of(peer.roles), peer.connected && !peer.lost));
      }
    }
    json::Array all;
    for (auto& [id, node] : by_id) all.push_back(std::move(node));
    return all;
  }

  void write_result(const OnlineRLContext& ctx, bool solved) {
    const json::Object result = {{"solved", solved},
                                 {"eval_value", ctx.last_eval_value},
                                 {"env_step", ctx.env_step},
                                 {"train_iter", ctx.train_iter},
                                 {"seconds", now()}};
    divisi::write_file_atomically(options_.folder.result(), json::print(result, 2) + "\n");
  }

  void write(const json::Object& line) const {
    const std::string text = json::print(line) + "\n";
    if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail();
  }

  [[noreturn]] void fail() const {
    throw divisi::Error(divisi::Code::kUnavailable,
                        fmt::format("writing {}: {}", options_.folder.log(), std::strerror(errno)));
  }

  const LearnerLogOptions options_;
  const int file_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_line_ = start_;
  bool begun_ = false;
  std::int64_t last_env_step_ = 0;
  std::int64_t last_train_iter_ = 0;
  double env_rate_ = 0;
  double train_rate_ = 0;
  divisi::rl::TrainOutput output_;
};

}  // namespace

divisi::Middleware learner_log(LearnerLogOptions options) {
  if (!task.has_role(divisi::Role::kLearner)) return divisi::VoidMiddleware{};
  const auto log = std::make_shared<LearnerLog>(std::move(options));
  return divisi::named("learner_log", [log](OnlineRLContext& ctx) { log->after_iteration(ctx); });
}

double seconds_logged(const RunFolder& folder) {
  std::ifstream file(folder.log());
  Progress progress;
  for (std::string line; std::getline(file, line);) progress.take(line);
  return progress.seconds;
}

}  // namespace cartpole
