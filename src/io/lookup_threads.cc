#include "io/lookup_threads.h"

#include <chrono>
#include <memory>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <utility>

namespace divisi::io {

namespace {
constexpr std::size_t kMostThreads = 8;
constexpr auto kIdleTime = std::chrono::seconds(10);  // then a thread ends
}  // namespace

LookupThreads::LookupThreads() {
  // A child of fork() has none of the threads; whoever held the mutex is not there either.
  ::pthread_atfork(nullptr, nullptr, [] {
    LookupThreads& threads = instance();
    std::construct_at(&threads.mutex_);
    std::construct_at(&threads.changed_);
    std::construct_at(&threads.waiting_);
    threads.threads_ = threads.idle_ = 0;
  });
}

LookupThreads& LookupThreads::instance() {
  static auto* const threads = new LookupThreads;  // lookups may outlive static objects
  return *threads;
}

Status LookupThreads::run(std::function<void()> lookup) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(lookup));
  if (idle_ >= waiting_.size()) {
    changed_.notify_one();
    return {};
  }
  if (threads_ == kMostThreads) return {};
  try {
    std::thread([this] { work(); }).detach();
    ++threads_;
  } catch (const std::system_error& error) {
    if (threads_ > 0) return {};  // those that are there will do it
    waiting_.pop_back();
    return make_status(Code::kUnavailable, "no thread to look the name up: {}",
                       error.code().message());
  }
  return {};
}

void LookupThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    const bool more = changed_.wait_for(lock, kIdleTime, [this] { return !waiting_.empty(); });
    --idle_;
    if (!more) break;
    {
      const std::function<void()> lookup = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      lookup();
    }  // what it holds goes before the lock comes back
    lock.lock();
  }
  --threads_;
}

}  // namespace divisi::io
