// Pool: the threads on which a task in async mode runs its middleware. JobGroup: what was
// submitted together and is waited for together.
//
// Every member may be called from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace divisi::runtime {

class Pool {
 public:
  using Job = std::function<void()>;  // must not throw

  explicit Pool(int threads);
  ~Pool();  // after join()
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Jobs start in the order they were submitted. False after close().
  bool submit(Job job);

  // Is the calling thread one of this pool?
  bool is_current() const noexcept;

  // No new jobs; what is queued still runs.
  void close();

  // Waits for the threads to end, after close(). False at the deadline: the threads that still
  // run a job are left to themselves, jobs that did not start are dropped.
  bool join(std::chrono::milliseconds deadline);

 private:
  // Shared with the threads, which may outlive the pool when join() gave up on them.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> queue;  // guarded by mutex, as all below
    bool closed = false;
    int running = 0;  // threads that have not ended
  };
  static void work(std::shared_ptr<Shared> shared);

  const std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;  // changed by the constructor and join() only
};

class JobGroup : public std::enable_shared_from_this<JobGroup> {
 public:
  // Runs `job` on `pool`; what it throws belongs to the group. False when the pool is closed.
  bool submit(Pool& pool, std::function<void()> job);

  // Waits until every job has ended, or one has failed. Null: none failed. A failure is handed
  // out once; further ones before that are logged.
  std::exception_ptr wait_for_all_or_failure();

  // Waits until every job has ended; the first failure, or null. On a thread of `pool` it runs
  // the jobs that have not started itself, so that groups may nest however small the pool is.
  std::exception_ptr wait_for_all(const Pool& pool);

  // Forgets the jobs that have not started: nobody will wait for them.
  void abandon();

  // What was submitted so far failed as a whole, and that was told: whatever else of it fails is
  // logged, and is not handed out. Jobs that run are still waited for.
  void settle();

 private:
  struct Ticket;
  void run(Ticket& ticket);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Ticket>> unstarted_;  // guarded by mutex_, as all below
  std::size_t pending_ = 0;
  std::uint64_t batch_ = 0;  // of what is submitted now; settle() ends one
  std::exception_ptr failure_;
};

}  // namespace divisi::runtime
