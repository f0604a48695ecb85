#include "dist/task_queue.h"

#include "base/log.h"
#include "dist/python_repr.h"

#include <utility>
#include <vector>

namespace divisi::dist {
namespace {

// The part of its time-out for which a task is tried before it goes back into the queue.
constexpr double kCollectorRound = 0.3;
constexpr double kLearnerRound = 0.1;

double wall_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_of(io::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

io::Duration TaskQueue::limit() const {
  const CoordinatorOptions& options = desk_.options();
  return role_ == Role::kCollector ? options.collector_limit : options.learner_limit;
}

void TaskQueue::put(json::Value task) {
  auto entry = std::make_shared<Entry>();
  entry->id = task.string_at({"task_id"});
  entry->task = std::move(task);
  entry->put = entry->popped = desk_.reactor().now();
  entry->put_wall = wall_now();
  entries_.emplace(entry->id, entry);
  desk_.log().named("{} task({}) put into queue", role_name(role_), entry->id);
  attempt(entry, true);
}

void TaskQueue::kick() {
  std::vector<EntryPtr> waiting;
  for (const auto& [id, entry] : entries_) {
    if (!entry->starting && !entry->refused) waiting.push_back(entry);
  }
  for (const EntryPtr& entry : waiting) attempt(entry, false);
}

void TaskQueue::drop_all() {
  for (const auto& [id, entry] : std::exchange(entries_, {})) {
    entry->retry.reset();
    desk_.commander().dropped(role_, entry->task, DropReason::kStopped, "the coordinator ends");
  }
}

void TaskQueue::attempt(const EntryPtr& entry, bool say) {
  if (too_old(entry)) return;
  if (role_ == Role::kCollector) {
    const std::string_view buffer = entry->task.string_at({"buffer_id"});
    if (!desk_.has_buffer(buffer)) {
      if (say) {
        desk_.log().named("collector_task({}) can't find proper buffer_id({})", entry->id, buffer);
      }
      return retry_later(entry);
    }
  }
  const auto worker = desk_.workers().take(role_);
  if (!worker) return retry_later(entry);
  send(entry, *worker);
}

bool TaskQueue::too_old(const EntryPtr& entry) {
  const io::TimePoint now = desk_.reactor().now();
  const io::Duration age = now - entry->put;
  if (age >= limit()) {
    desk_.log().named("{} task({}) timeout: [{}, {}, {}/{:g}]", role_name(role_), entry->id,
                      python_repr(wall_now()), python_repr(entry->put_wall),
                      python_repr(seconds_of(age)), seconds_of(limit()));
    entry->retry.reset();
    entries_.erase(entry->id);
    desk_.commander().dropped(role_, entry->task, DropReason::kTimedOut, "no worker in time");
    desk_.look();
    return true;
  }
  const double round = role_ == Role::kCollector ? kCollectorRound : kLearnerRound;
  if (seconds_of(now - entry->popped) >= round * seconds_of(limit())) {
    desk_.log().named("{} task({}) reput into queue", role_name(role_), entry->id);
    entry->popped = now;
  }
  return false;
}

void TaskQueue::send(const EntryPtr& entry, const Workers::Idle& worker) {
  json::Value task = entry->task;
  task[role_ == Role::kCollector ? "collector_id" : "learner_id"] = worker.url;
  task["resource_info"] = worker.resource;
  entry->starting = true;
  entry->retry.reset();
  const std::string name = fmt::format("{}_start_task", role_name(role_));
  desk_.master().new_task(
      worker.url, json::Object{{"name", name}, {"task_info", task}}, desk_.options().start_limit,
      [this, weak = std::weak_ptr(entry), url = worker.url, task](const TaskReport& report) {
        if (const EntryPtr alive = weak.lock()) on_start_report(alive, url, task, report);
      });
}

void TaskQueue::on_start_report(const EntryPtr& entry, const std::string& url,
                                const json::Value& task, const TaskReport& report) {
  entry->starting = false;
  if (report.state != TaskState::kCompleted) {
    log::warning("{} task({}) was not started by {}: {}", role_name(role_), entry->id, url,
                 report.why);
    // A worker that refuses is idle again at once: without the pause it would be asked in a loop.
    entry->refused = !report.lost;
    desk_.workers().release(url);
    return retry_later(entry);
  }
  entries_.erase(entry->id);
  desk_.on_assigned(role_, task, url);
}

void TaskQueue::retry_later(const EntryPtr& entry) {
  // The pause, or less when the task becomes too old before.
  const io::Duration left = entry->put + limit() - desk_.reactor().now();
  const io::Duration pause =
      std::max(io::Duration::zero(), std::min(left, desk_.options().assign_retry));
  entry->retry = desk_.reactor().after(pause, [this, weak = std::weak_ptr(entry)] {
    const EntryPtr alive = weak.lock();
    if (!alive) return;
    alive->refused = false;
    attempt(alive, true);
  });
}

}  // namespace divisi::dist
