#include "dist/task_run.h"

#include "base/log.h"

#include <utility>

namespace divisi::dist {

TaskRun::TaskRun(CoordinatorDesk& desk, Role role, json::Value task, std::string url)
    : desk_(desk),
      task_(std::move(task)),
      role_(role),
      id_(task_.string_at({"task_id"})),
      url_(std::move(url)) {}

void TaskRun::ask(json::Value data, std::function<void(const json::Value&)> on_result) {
  const json::Value sent = data;
  desk_.master().new_task(url_, sent, desk_.options().task_limit,
                          [weak = weak_from_this(), data = std::move(data),
                           on_result = std::move(on_result)](const TaskReport& report) {
                            const auto self = weak.lock();
                            if (self && !self->over_) self->on_report(data, on_result, report);
                          });
}

void TaskRun::on_report(const json::Value& data,
                        const std::function<void(const json::Value&)>& on_result,
                        const TaskReport& report) {
  if (report.state == TaskState::kCompleted) {
    failures_ = 0;
    return on_result(report.result);
  }
  if (report.lost) return drop(DropReason::kWorkerLost, report.why);
  log::warning("{} of {} task({}) failed: {}", data.string_at({"name"}), role_name(role_), id_,
               report.why);
  if (++failures_ >= desk_.options().task_failures) return drop(DropReason::kFailed, report.why);
  later(desk_.options().task_retry, [this, data, on_result] { ask(data, on_result); });
}

void TaskRun::later(io::Duration pause, std::function<void()> work) {
  timer_ = desk_.reactor().after(pause, [weak = weak_from_this(), work = std::move(work)] {
    const auto self = weak.lock();
    if (self && !self->over_) work();
  });
}

void TaskRun::close() {
  const std::string name = fmt::format("{}_close_task", role_name(role_));
  ask(json::Object{{"name", name}}, [this](const json::Value& result) {
    end();
    log::info("{} task({}) finish", role_name(role_), id_);
    desk_.commander().finished(role_, task_, result);
    desk_.on_run_over(id_);
    desk_.workers().release(url_);
    desk_.look();
  });
}

void TaskRun::drop(DropReason reason, std::string_view why) {
  if (over_) return;
  end();
  if (reason != DropReason::kStopped) {
    log::warning("{} task({}) of {} is dropped: {}", role_name(role_), id_, url_, why);
  }
  desk_.commander().dropped(role_, task_, reason, why);
  desk_.on_run_over(id_);
  desk_.workers().release(url_);
  desk_.look();
}

void TaskRun::stop() {
  if (over_) return;
  end();
  desk_.commander().dropped(role_, task_, DropReason::kStopped, "the coordinator ends");
}

void TaskRun::end() {
  over_ = true;
  timer_.reset();
}

}  // namespace divisi::dist
