#include "base/log.h"
#include "dist/task_run.h"

#include <utility>

namespace divisi::dist {
namespace {

class CollectorRun final : public TaskRun {
 public:
  CollectorRun(CoordinatorDesk& desk, json::Value task, std::string url)
      : TaskRun(desk, Role::kCollector, std::move(task), std::move(url)) {}

  void start() override { poll(); }

 private:
  void poll() {
    ask(json::Object{{"name", "collector_data_task"}},
        [this](const json::Value& record) { on_record(record); });
  }

  void on_record(const json::Value& record) {
    bool over = false;
    if (const json::Value* data_id = record.find("data_id"); data_id != nullptr) {
      const std::string_view own = record.string_at({"buffer_id"});
      const std::string buffer(own.empty() ? buffer_id() : own);
      if (!desk_.has_buffer(buffer)) {
        // Its learner is gone. The next learner has a buffer of its own, and tasks for it.
        log::info("collector task({}) has no buffer any more: closed", id());
        return close();
      }
      desk_.commander().push(buffer, task_, record);
      desk_.log().named("collector task({}) send data({})", id(), text_of(*data_id));
      // The oldest generation says it in a data record.
      over = record.bool_at({"finished_task"}).value_or(false);
    } else {
      over = desk_.commander().collector_progress(task_, record);
    }
    desk_.look();
    if (over) return close();
    poll();
  }

  static std::string text_of(const json::Value& id) {
    const std::string* text = id.as_string();
    return text != nullptr ? *text : json::print(id);
  }
};

}  // namespace

std::shared_ptr<TaskRun> make_collector_run(CoordinatorDesk& desk, json::Value task,
                                            std::string url) {
  return std::make_shared<CollectorRun>(desk, std::move(task), std::move(url));
}

}  // namespace divisi::dist
