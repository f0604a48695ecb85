#include "study/study_state.h"

#include "base/deadline.h"
#include "study/study_spec.h"

#include <cmath>
#include <limits>

namespace divisi::tune {

Study::State::State(std::string stored_at, Access may, StudyOptions with, std::unique_ptr<Log> in,
                    Log::Entry entry)
    : url(std::move(stored_at)),
      options(std::move(with)),
      spec(std::move(entry.spec)),
      study(entry.id),
      log(std::move(in)),
      access(may),
      records(spec.space) {}

Study::State::~State() {
  if (maintenance_.joinable()) {
    maintenance_.request_stop();
    maintenance_.join();
  }
  if (worker == 0) return;
  // A file that cannot be written any more: others see that the process has ended.
  const Status left = write([this] { return put({.kind = ChangeKind::kLeave, .worker = worker}); });
  if (left.ok() && options.fsync == Fsync::kSecond) static_cast<void>(log->sync());
}

Status Study::State::write(const Operation& operation) {
  Waiting own{.operation = &operation, .status = {}, .error = nullptr};
  std::vector<Waiting*> batch;
  {
    std::unique_lock lock(queue_mutex_);
    queue_.push_back(&own);
    queue_changed_.wait(lock, [&] { return own.done || !busy_; });
    if (!own.done) {
      busy_ = true;
      batch.swap(queue_);
    }
  }
  if (!batch.empty()) {
    run_batch(batch);
    const std::lock_guard lock(queue_mutex_);
    busy_ = false;
    for (Waiting* one : batch) one->done = true;
    queue_changed_.notify_all();
  }
  if (own.error) std::rethrow_exception(own.error);
  return own.status;
}

void Study::State::run_batch(const std::vector<Waiting*>& batch) {
  const std::lock_guard lock(mutex);
  try {
    const Status failed = run_all(batch);
    if (failed.ok()) return;
    for (Waiting* one : batch) {
      if (one->status.ok()) one->status = failed;
    }
  } catch (...) {  // out of memory: the others must neither wait for ever nor believe it stored
    log->abandon();
    stale_ = true;
    worker = worker_before_;
    for (Waiting* one : batch) one->error = std::current_exception();
  }
}

Status Study::State::run_all(const std::vector<Waiting*>& batch) {
  DIVISI_TRY_STATUS(begin());
  for (Waiting* one : batch) {
    try {
      one->status = (*one->operation)();
    } catch (...) {
      one->error = std::current_exception();
    }
    if (stale_) {  // the log has failed: nothing of this transaction holds
      log->abandon();
      worker = worker_before_;
      return one->status;
    }
  }
  if (!wrote_any_) {
    log->abandon();
    return {};
  }
  if (Status committed = log->commit(); !committed.ok()) {
    stale_ = true;
    worker = worker_before_;
    return committed;
  }
  committed_ = records.last_change();
  ++commits;
  wrote();
  if (options.fsync == Fsync::kAlways) ++syncs;  // by the commit, which failed if that did
  // Without a worker nobody forces it later.
  const bool now = options.fsync == Fsync::kSecond && !maintenance_.joinable();
  return now ? force() : Status();
}

// The lock, and the records as they are now.
Status Study::State::begin() {
  {
    const std::lock_guard lock(wake_mutex_);
    if (!sync_error_.ok()) return std::exchange(sync_error_, {});
  }
  if (access == Access::kRead) {
    Result<std::unique_ptr<Log>> writable = open_log(url, Access::kWrite, options.fsync);
    if (!writable) return writable.error();
    read_log_ = std::exchange(log, *std::move(writable));
    access = Access::kWrite;
    stale_ = true;  // its first reading is from the beginning
  }
  wrote_any_ = false;
  worker_before_ = worker;
  DIVISI_TRY_STATUS(log->lock());
  Status current = catch_up();
  if (!current.ok()) log->abandon();
  return current;
}

Status Study::State::catch_up() {
  if (stale_ || log->shrunk()) {
    stale_ = true;
    DIVISI_TRY_STATUS(read_anew());
    stale_ = false;
  } else {
    DIVISI_TRY_STATUS(log->read(study, records.last_change(),
                                [this](const Change& change) { return take(change); }));
  }
  committed_ = records.last_change();
  return {};
}

// The sampler keeps what it knows; trials that were never stored are unknown to everybody else.
Status Study::State::read_anew() {
  Records before = std::exchange(records, Records(records.spaces().front()));
  Status read = log->read(study, 0, [&](const Change& change) {
    const bool known = change.number <= committed_ && before.has(change);
    return known ? records.apply(change) : take(change);
  });
  if (!read.ok()) {
    records = std::move(before);
    return read;
  }
  spec.space = records.spaces().back();
  return {};
}

Status Study::State::refresh() {
  const std::lock_guard lock(mutex);
  return catch_up();
}

Status Study::State::take(const Change& change) {
  DIVISI_TRY_STATUS(records.apply(change));
  if (change.kind == ChangeKind::kAdd || change.kind == ChangeKind::kAsk) {
    unfed.push_back({.trial = change.trial});
  } else if (change.kind == ChangeKind::kTell) {
    unfed.push_back({.trial = change.trial, .ended = true});
  } else if (change.kind == ChangeKind::kSpace) {
    spec.space = change.text_a;
  }
  return {};
}

Status Study::State::put(Change change) {
  change.time = wall_clock();
  // Nobody knows how far: as far as can be. SQLite would read 0, which is feasible.
  if (std::isnan(change.violation)) change.violation = std::numeric_limits<double>::infinity();
  DIVISI_TRY_STATUS(records.check(change));
  if (Status appended = log->append(study, change); !appended.ok()) {
    // A text that is no JSON is the caller's mistake and has changed nothing.
    if (appended.code() != Code::kInvalid) stale_ = true;
    return appended;
  }
  wrote_any_ = true;
  return take(change);
}

Result<std::uint64_t> Study::State::own_worker() {
  if (worker != 0) return worker;
  const std::uint64_t next = records.workers().empty() ? 1 : records.workers().rbegin()->first + 1;
  const double beat = std::chrono::duration<double>(options.heartbeat).count();
  Status joined = put(
      {.kind = ChangeKind::kWorker, .worker = next, .text_a = WorkerIdentity::own(beat).text()});
  if (!joined.ok()) return failure(std::move(joined));
  worker = next;
  if (!maintenance_.joinable()) {
    maintenance_ = std::jthread([this](const std::stop_token& stop) { maintain(stop); });
  }
  return worker;
}

std::optional<std::uint64_t> Study::State::waiting_trial() const {
  const double now = wall_clock();
  std::map<std::uint64_t, bool> gone;  // workers
  for (const auto& [id, stage] : records.open()) {
    if (stage == TrialStage::kWaiting) return id;
    const std::uint64_t owner = records.find(id)->worker;
    if (owner == worker) continue;
    const auto [known, fresh] = gone.try_emplace(owner, true);
    if (fresh) {
      const auto found = records.workers().find(owner);
      known->second = found == records.workers().end() || found->second.left ||
                      !found->second.identity.lives(found->second.seen, now);
    }
    if (known->second) return id;
  }
  return std::nullopt;
}

Status Study::State::put_of_running(ChangeKind kind, std::uint64_t trial, Change change) {
  const TrialRecord* record = records.find(trial);
  if (record != nullptr && record->stage == TrialStage::kWaiting) {
    return make_status(Code::kInvalid, "trial {} does not run here: it is waiting", trial);
  }
  if (worker == 0 && record != nullptr && !is_finished(record->stage)) {
    return make_status(Code::kInvalid, "trial {} does not run here: it is with worker {}", trial,
                       record->worker);
  }
  change.kind = kind;
  change.trial = trial;
  change.worker = worker;
  return put(std::move(change));
}

void Study::State::wrote() {
  const std::lock_guard lock(wake_mutex_);
  dirty_ = true;
  wake_.notify_all();
}

Status Study::State::force() {
  ++syncs;
  return log->sync();
}

// Forces what was written to the disk within a second, and shows now and then that the worker
// lives.
void Study::State::maintain(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  const bool forces = options.fsync == Fsync::kSecond;
  Clock::time_point next_beat = deadline_after(options.heartbeat);
  std::unique_lock lock(wake_mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_until(lock, stop, next_beat, [&] { return forces && dirty_; });
    if (forces && dirty_ && !stop.stop_requested()) {
      wake_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
      dirty_ = false;
      lock.unlock();
      Status forced = force();
      lock.lock();
      if (!forced.ok()) sync_error_ = std::move(forced);
    }
    if (Clock::now() < next_beat || stop.stop_requested()) continue;
    lock.unlock();
    // One that fails is followed by others; a file that cannot be written is noticed by tell().
    static_cast<void>(write([this] { return put({.kind = ChangeKind::kBeat, .worker = worker}); }));
    lock.lock();
    next_beat = deadline_after(options.heartbeat);
  }
}

}  // namespace divisi::tune
