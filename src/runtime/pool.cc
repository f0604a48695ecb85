#include "runtime/pool.h"

#include "base/deadline.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/worker.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace divisi::runtime {
namespace {

thread_local const void* current_pool = nullptr;

}  // namespace

Pool::Pool(int threads) : shared_(std::make_shared<Shared>()) {
  try {
    for (int i = 0; i < threads; ++i) {
      {
        const std::lock_guard lock(shared_->mutex);
        ++shared_->running;
      }
      threads_.emplace_back(&Pool::work, shared_);
    }
  } catch (const std::system_error& error) {
    {
      const std::lock_guard lock(shared_->mutex);
      --shared_->running;
    }
    close();
    for (std::thread& thread : threads_) thread.join();
    throw Error(Code::kUnavailable,
                fmt::format("n_async_workers={}: the system gives only {} threads: {}", threads,
                            threads_.size(), error.code().message()));
  }
}

Pool::~Pool() {
  DIVISI_CHECK(threads_.empty(), "a pool was destroyed before it was joined");
}

bool Pool::submit(Job job) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->closed) return false;
    shared_->queue.push_back(std::move(job));
  }
  shared_->changed.notify_one();
  return true;
}

bool Pool::is_current() const noexcept {
  return current_pool == shared_.get();
}

void Pool::work(std::shared_ptr<Shared> shared) {
  current_pool = shared.get();
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->closed || !shared->queue.empty(); });
    if (shared->queue.empty()) break;
    {
      const Job job = std::move(shared->queue.front());
      shared->queue.pop_front();
      lock.unlock();
      job();
    }  // what the job holds goes before the lock comes back
    lock.lock();
  }
  --shared->running;
  shared->changed.notify_all();
}

void Pool::close() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closed = true;
  }
  shared_->changed.notify_all();
}

bool Pool::join(std::chrono::milliseconds deadline) {
  std::deque<Job> dropped;
  bool ended = false;
  {
    std::unique_lock lock(shared_->mutex);
    ended = shared_->changed.wait_until(lock, deadline_after(deadline),
                                        [&] { return shared_->running == 0; });
    if (!ended) dropped.swap(shared_->queue);
  }
  for (std::thread& thread : threads_) ended ? thread.join() : thread.detach();
  threads_.clear();
  return ended;
}

struct JobGroup::Ticket {
  std::function<void()> job;
  std::uint64_t batch = 0;
};

namespace {
void log_further(const std::exception_ptr& failure) {
  if (failure == nullptr) return;
  log::error("another job of the task failed: {}", describe_exception(failure));
}
}  // namespace

bool JobGroup::submit(Pool& pool, std::function<void()> job) {
  auto ticket = std::make_shared<Ticket>(Ticket{std::move(job)});
  {
    const std::lock_guard lock(mutex_);
    ticket->batch = batch_;
    unstarted_.push_back(ticket);
    ++pending_;
  }
  const auto claim = [](JobGroup& group, const std::shared_ptr<Ticket>& wanted) {
    const std::lock_guard lock(group.mutex_);
    const auto found = std::ranges::find(group.unstarted_, wanted);
    if (found == group.unstarted_.end()) return false;
    group.unstarted_.erase(found);
    return true;
  };
  const bool accepted = pool.submit([self = shared_from_this(), ticket, claim] {
    if (claim(*self, ticket)) self->run(*ticket);
  });
  if (!accepted && claim(*this, ticket)) {
    const std::lock_guard lock(mutex_);
    --pending_;
  }
  return accepted;
}

void JobGroup::run(Ticket& ticket) {
  std::exception_ptr failure;
  try {
    ticket.job();
  } catch (...) {
    failure = std::current_exception();
  }
  ticket.job = nullptr;
  {
    const std::lock_guard lock(mutex_);
    --pending_;
    if (failure_ == nullptr && ticket.batch == batch_) failure_ = std::exchange(failure, nullptr);
    changed_.notify_all();
  }
  log_further(failure);
}

void JobGroup::settle() {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    ++batch_;
    failure = std::exchange(failure_, nullptr);
  }
  log_further(failure);
}

std::exception_ptr JobGroup::wait_for_all_or_failure() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_ == 0 || failure_ != nullptr; });
  return std::exchange(failure_, nullptr);
}

std::exception_ptr JobGroup::wait_for_all(const Pool& pool) {
  std::unique_lock lock(mutex_);
  while (pool.is_current() && !unstarted_.empty()) {
    const std::shared_ptr<Ticket> ticket = unstarted_.front();
    unstarted_.pop_front();
    lock.unlock();
    run(*ticket);
    lock.lock();
  }
  changed_.wait(lock, [&] { return pending_ == 0; });
  return std::exchange(failure_, nullptr);
}

void JobGroup::abandon() {
  std::deque<std::shared_ptr<Ticket>> dropped;
  const std::lock_guard lock(mutex_);
  pending_ -= unstarted_.size();
  dropped.swap(unstarted_);
  changed_.notify_all();
}

}  // namespace divisi::runtime
