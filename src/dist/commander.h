// Commander: what a coordinator trains. It makes the tasks, owns the replay buffers, and says when
// training is over; the coordinator moves tasks and records between it and the workers.
//
// A task is an object as in section "Tasks" of the protocol, with at least
//   learner:   task_id, policy_id, buffer_id, learner_cfg, replay_buffer_cfg
//   collector: task_id, buffer_id, collector_cfg
// Ids come from new_id() (dist/ids.h). The coordinator adds collector_id (or learner_id) and
// resource_info when it assigns a task.
//
// All members are called on the coordinator's loop, one at a time, and must not block. The order of
// calls for one task:
//   next_*_task -> accepted -> collector_data / learner_info ... -> finished
//                |-> dropped (never accepted)    |-> dropped (accepted, then its worker was lost)
// finished() or dropped() is called exactly once for each task, and frees its place in the task
// space.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::dist {

enum class Role : std::uint8_t { kCollector, kLearner };

// "collector" or "learner".
constexpr std::string_view role_name(Role role) {
  return role == Role::kCollector ? "collector" : "learner";
}

enum class DropReason : std::uint8_t {
  kTimedOut,    // waited too long in the queue
  kWorkerLost,  // its worker vanished, was deleted or forgot the task
  kFailed,      // its worker answered with a failure; `why` has its message
  kStopped,     // the coordinator ends
};

class Commander {
 public:
  virtual ~Commander() = default;

  // The next task that the task space has room for; nullopt when there is none now. Asked several
  // times a second. A task that is returned counts against the space until it ends.
  virtual std::optional<json::Value> next_task(Role role) = 0;

  // A worker started the task; `task` is what next_task() returned plus what the coordinator added.
  virtual void accepted(Role role, const json::Value& task) = 0;

  // The end of a task that its worker closed; `result` is the finish info of collector_close_task
  // or the answer to learner_close_task.
  virtual void finished(Role role, const json::Value& task, const json::Value& result) = 0;

  // The end of a task for any other reason. The buffer of a dropped learner task is closed by the
  // coordinator (close_buffer) right after.
  virtual void dropped(Role role, const json::Value& task, DropReason why,
                       std::string_view text) = 0;

  // A record without data_id: collector_done, cur_episode, cur_sample, cur_step. True: the task is
  // to be closed.
  virtual bool collector_progress(const json::Value& task, const json::Value& record) = 0;

  // `info` of a learner_learn_task: learner_step, priority_info, learner_done. True: the task is to
  // be closed.
  virtual bool learner_info(const json::Value& task, const json::Value& info) = 0;

  // A worker joined the pool after training began: a collector raises the collector task space by
  // one.
  virtual void worker_added(Role role) = 0;
  // A worker that had joined is gone (lost, deleted, unusable) after training began; its task, if
  // it had one, is dropped around the same time. One that joins again is announced by
  // worker_added().
  virtual void worker_removed(Role role) { (void)role; }

  // Replay buffers, by buffer_id. They hold records, not samples: a record names a file.
  // Opened when the learner task is accepted, before accepted().
  virtual Status open_buffer(std::string_view buffer_id, const json::Value& learner_task) = 0;
  virtual void close_buffer(std::string_view buffer_id) = 0;
  // A data record of a collector; `task` is the collector's.
  virtual void push(std::string_view buffer_id, const json::Value& task, json::Value record) = 0;
  // `count` records for a learner at iteration `iter`; nullopt while there are too few.
  virtual std::optional<json::Array> sample(std::string_view buffer_id, std::int64_t count,
                                            std::int64_t iter) = 0;
  virtual void update(std::string_view buffer_id, const json::Value& priority_info) = 0;

  // nullopt while training goes on; ok when it is done (the coordinator ends with exit 0), a
  // failure when it cannot go on. Asked after each of the calls above and at each turn of the
  // queues.
  virtual std::optional<Status> outcome() const = 0;
};

}  // namespace divisi::dist
