// The inside of a Study: its log, its records, and the writes of several threads in one
// transaction.
#pragma once

#include "divisi/study.h"
#include "study/log.h"
#include "study/records.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace divisi::tune {

struct Study::State {
 public:
  // What a search has to learn, in the order in which it happened.
  struct Event {
    std::uint64_t trial = 0;
    bool ended = false;  // or it was made
  };
  // Runs alone, on the thread of any writer, and calls put(). What it throws goes to its caller.
  using Operation = std::function<Status()>;

  State(std::string url, Access access, StudyOptions options, std::unique_ptr<Log> log,
        Log::Entry entry);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // Runs the operation with the newest records and stores what it put. Operations of several
  // threads share a transaction.
  Status write(const Operation& operation);
  // Reads what others have written.
  Status refresh();

  // --- for operations ---

  // A change with the time of now.
  Status put(Change change);
  // The number of this worker; the first call makes it one.
  Result<std::uint64_t> own_worker();
  // The trial that waits, or was left behind by a worker that died, with the lowest number; nothing
  // if there is none.
  std::optional<std::uint64_t> waiting_trial() const;
  // A trial of this worker that runs.
  Status put_of_running(ChangeKind kind, std::uint64_t trial, Change change);

  const std::string url;
  const StudyOptions options;
  StudySpec spec;
  const std::uint64_t study;

  mutable std::mutex mutex;  // guards all of the following; held while operations run
  std::unique_ptr<Log> log;
  Access access;
  Records records;
  std::vector<Event> unfed;  // what the sampler does not know yet
  // The points whose ends the sampler waits for, by trial. One that could not be stored stays here,
  // and is the next to be asked for.
  std::map<std::uint64_t, std::vector<double>> held;
  std::uint64_t worker = 0;  // 0: none yet

  std::atomic<std::uint64_t> commits{0};
  std::atomic<std::uint64_t> syncs{0};

 private:
  struct Waiting {
    const Operation* operation;
    Status status;
    std::exception_ptr error;
    bool done = false;
  };

  void run_batch(const std::vector<Waiting*>& batch);
  Status run_all(const std::vector<Waiting*>& batch);
  Status begin();
  Status catch_up();
  Status read_anew();
  Status take(const Change& change);
  void maintain(const std::stop_token& stop);
  void wrote();
  Status force();

  std::unique_ptr<Log> read_log_;  // what log was at first: sync() may be in it

  bool stale_ = false;               // guarded by mutex: the records have what was never committed
  std::uint64_t committed_ = 0;      // likewise: the last change that is stored
  bool wrote_any_ = false;           // likewise: in the running transaction
  std::uint64_t worker_before_ = 0;  // likewise: as it began

  std::mutex queue_mutex_;  // guards queue_ and busy_
  std::condition_variable queue_changed_;
  std::vector<Waiting*> queue_;
  bool busy_ = false;

  std::mutex wake_mutex_;  // guards dirty_ and sync_error_
  std::condition_variable_any wake_;
  bool dirty_ = false;
  Status sync_error_;
  std::jthread maintenance_;  // last: ends first
};

}  // namespace divisi::tune
