#include "base/log.h"
#include "dist/task_run.h"

#include <algorithm>
#include <utility>

namespace divisi::dist {
namespace {

constexpr std::int64_t kLargestBatch = 10'000'000;

class LearnerRun final : public TaskRun {
 public:
  LearnerRun(CoordinatorDesk& desk, json::Value task, std::string url)
      : TaskRun(desk, Role::kLearner, std::move(task), std::move(url)) {}

  void start() override { get_data(); }

 private:
  void get_data() {
    ask(json::Object{{"name", "learner_get_data_task"}},
        [this](const json::Value& demand) { on_demand(demand); });
  }

  void on_demand(const json::Value& demand) {
    const std::int64_t batch = demand.int_at({"batch_size"}).value_or(0);
    if (batch < 1 || batch > kLargestBatch) {
      return drop(DropReason::kFailed, "learner_get_data_task: batch_size must be 1 or more");
    }
    tries_ = 0;
    sample(batch, demand.int_at({"cur_learner_iter"}).value_or(0));
  }

  void sample(std::int64_t batch, std::int64_t iteration) {
    auto records = desk_.commander().sample(buffer_id(), batch, iteration);
    desk_.look();
    if (!records) {
      // 1, 3, 5 ... times the pause.
      const CoordinatorOptions& options = desk_.options();
      const io::Duration pause = std::min<io::Duration>(options.sample_pause * (2 * tries_ + 1),
                                                        options.sample_pause_limit);
      ++tries_;
      return later(pause, [this, batch, iteration] { sample(batch, iteration); });
    }
    ask(json::Object{{"name", "learner_learn_task"}, {"data", *std::move(records)}},
        [this](const json::Value& result) { on_learned(result); });
  }

  void on_learned(const json::Value& result) {
    const json::Value* given = result.find("info");
    const json::Value info = given != nullptr ? *given : json::Value(json::Object{});
    if (desk_.commander().learner_info(task_, info)) {
      desk_.look();
      return close();
    }
    if (const json::Value* priorities = info.find("priority_info");
        priorities != nullptr && !priorities->is_null()) {
      desk_.commander().update(buffer_id(), *priorities);
    }
    desk_.look();
    get_data();
  }

  int tries_ = 0;
};

}  // namespace

std::shared_ptr<TaskRun> make_learner_run(CoordinatorDesk& desk, json::Value task,
                                          std::string url) {
  return std::make_shared<LearnerRun>(desk, std::move(task), std::move(url));
}

}  // namespace divisi::dist
