// termination_checker and ddp_termination_checker.
#include "base/log.h"
#include "divisi/checkpoint.h"
#include "divisi/error.h"
#include "divisi/parallel.h"
#include "runtime/arrival.h"
#include "runtime/context_fields.h"
#include "runtime/exchange_gate.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <set>
#include <utility>

namespace divisi {
namespace {

using runtime::Arrival;
using runtime::counter_of;

constexpr const char* kName = "ddp_termination_checker";
constexpr const char* kWord = "ddp_termination";
constexpr const char* kAck = "ddp_termination_ack";

bool is_over(Context& ctx, const TerminationOptions& limits) {
  if (limits.max_env_step && counter_of(ctx, "env_step") > *limits.max_env_step) return true;
  return limits.max_train_iter && counter_of(ctx, "train_iter") > *limits.max_train_iter;
}

// What the listeners of one node hear.
struct Heard {
  Arrival arrival;
  // Guarded by arrival.mutex.
  std::deque<bool> words;      // of rank 0, one for each call: finish
  std::set<int> acknowledged;  // ranks
};

class DdpChecker {
 public:
  DdpChecker(DdpTerminationOptions options, Task& owner)
      : task_(owner), options_(options), heard_(std::make_shared<Heard>()) {
    if (options_.rank == 0) {
      owner.on(kAck, [heard = heard_](int rank) {
        const std::lock_guard lock(heard->arrival.mutex);
        heard->acknowledged.insert(rank);
        heard->arrival.tell();
      });
    } else {
      owner.on(kWord, [heard = heard_](std::int64_t, bool finish) {
        const std::lock_guard lock(heard->arrival.mutex);
        heard->words.push_back(finish);
        heard->arrival.tell();
      });
    }
  }

  void operator()(Context& ctx) {
    if (options_.rank == 0) {
      decide(ctx);
    } else {
      follow(ctx);
    }
  }

 private:
  void decide(Context& ctx) {
    const bool over =
        task_.finish() || is_over(ctx, {options_.max_env_step, options_.max_train_iter});
    const std::int64_t call = calls_++;
    task_.emit(kWord, only_remote, call, over);
    if (!over) return;
    // The first node that ends tells all others to finish at once: nobody leaves before all are
    // here. They say so, and the same word once more lets them go.
    const std::size_t others = options_.n_ranks > 0 ? static_cast<std::size_t>(options_.n_ranks) - 1
                                                    : task_.router().peers().size();
    std::unique_lock lock(heard_->arrival.mutex);
    const auto woken = heard_->arrival.wait(task_, lock, options_.timeout,
                                            [&] { return heard_->acknowledged.size() >= others; });
    if (woken == Arrival::Woken::kTimeout) {
      log::warning("{}: {} of {} other ranks did not come to iteration {} within {:.0f} s", kName,
                   others - heard_->acknowledged.size(), others, ctx.total_step, seconds());
    }
    lock.unlock();
    task_.emit(kWord, only_remote, call, true);
    task_.set_finish();
  }

  void follow(Context& ctx) {
    std::unique_lock lock(heard_->arrival.mutex);
    if (!await_word(lock, ctx)) return;
    const bool over = heard_->words.front();
    heard_->words.pop_front();
    if (!over) return;
    lock.unlock();
    task_.emit(kAck, only_remote, options_.rank);
    lock.lock();
    await_word(lock, ctx);
    lock.unlock();
    task_.set_finish();
  }

  // False: the task ends without one.
  bool await_word(std::unique_lock<std::mutex>& lock, const Context& ctx) {
    const auto woken = heard_->arrival.wait(task_, lock, options_.timeout,
                                            [this] { return !heard_->words.empty(); });
    if (woken == Arrival::Woken::kTimeout) {
      throw TimeoutError(fmt::format("{}: no word of rank 0 for iteration {} within {:.0f} s",
                                     kName, ctx.total_step, seconds()));
    }
    return woken == Arrival::Woken::kReady;
  }

  double seconds() const { return std::chrono::duration<double>(options_.timeout).count(); }

  Task& task_;
  DdpTerminationOptions options_;
  std::shared_ptr<Heard> heard_;
  std::int64_t calls_ = 0;  // of rank 0
};

}  // namespace

Middleware termination_checker(TerminationOptions options, Task& owner) {
  return named("termination_checker", [options, &owner](Context& ctx) {
    if (is_over(ctx, options)) owner.set_finish();
  });
}

Middleware ddp_termination_checker(DdpTerminationOptions options, Task& owner) {
  if (!runtime::in_job(owner)) {
    return termination_checker({options.max_env_step, options.max_train_iter}, owner)
        .renamed(kName);
  }
  return named(kName, DdpChecker(options, owner));
}

}  // namespace divisi
