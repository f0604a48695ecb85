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

constexpr const char* kWord = "ddp_termination_checker";
constexpr const char* kAck = "ddp_termination_ack";

bool is_over(Context& ctx, const TerminationOptions& limits) {
  if (limits.max_env_step && counter_of(ctx, "env_step") > *limits.max_env_step) return true;
  return limits.max_train_iter && counter_of(ctx, "train_iter") > *limits.max_train_iter;
}

// What the listeners of one node hear.
struct Heard {
  Arrival arrival;
  // Guarded by arrival.mutex.
  std::deque<std::pair<std::int64_t, bool>> words;  // of rank 0: iteration, finish
  std::set<int> acknowledged;                       // ranks
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
      owner.on(kWord, [heard = heard_](std::int64_t iteration, bool finish) {
        const std::lock_guard lock(heard->arrival.mutex);
        heard->words.emplace_back(iteration, finish);
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
    const bool over = is_over(ctx, {options_.max_env_step, options_.max_train_iter});
    task_.emit(kWord, only_remote, ctx.total_step, over);
    if (!over) return;
    // The first node that ends tells all others to finish at once: nobody leaves before all are
    // here. They say so, and the same word once more lets them go.
    const std::size_t others = options_.n_ranks > 0 ? static_cast<std::size_t>(options_.n_ranks) - 1
                                                    : task_.router().peers().size();
    std::unique_lock lock(heard_->arrival.mutex);
    const auto woken = heard_->arrival.wait(task_, lock, options_.timeout,
                                            [&] { return heard_->acknowledged.size() >= others; });
    if (woken == Arrival::Woken::kTimeout) {
      throw TimeoutError(fmt::format(
          "ddp_termination_checker: {} of {} other ranks did not come to iteration {} within "
          "{:.0f} s",
          others - heard_->acknowledged.size(), others, ctx.total_step,
          std::chrono::duration<double>(options_.timeout).count()));
    }
    lock.unlock();
    task_.emit(kWord, only_remote, ctx.total_step, true);
    task_.set_finish();
  }

  void follow(Context& ctx) {
    std::unique_lock lock(heard_->arrival.mutex);
    const auto is_here = [&] {
      while (!heard_->words.empty() && heard_->words.front().first < ctx.total_step) {
        heard_->words.pop_front();
      }
      return !heard_->words.empty();
    };
    const auto woken = heard_->arrival.wait(task_, lock, options_.timeout, is_here);
    if (woken == Arrival::Woken::kTimeout) {
      throw TimeoutError(
          fmt::format("ddp_termination_checker: no word of rank 0 for iteration {} within {:.0f} s",
                      ctx.total_step, std::chrono::duration<double>(options_.timeout).count()));
    }
    if (woken != Arrival::Woken::kReady) return;
    const auto [iteration, over] = heard_->words.front();
    // A word for a later iteration is not ours yet: rank 0 began before us.
    if (iteration > ctx.total_step) return;
    heard_->words.pop_front();
    if (!over) return;
    lock.unlock();
    task_.emit(kAck, only_remote, options_.rank);
    lock.lock();
    if (heard_->arrival.wait(task_, lock, options_.timeout, is_here) == Arrival::Woken::kTimeout) {
      throw TimeoutError("ddp_termination_checker: rank 0 did not hear of all ranks, or is gone");
    }
    lock.unlock();
    task_.set_finish();
  }

  Task& task_;
  DdpTerminationOptions options_;
  std::shared_ptr<Heard> heard_;
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
        .renamed(kWord);
  }
  return named(kWord, DdpChecker(options, owner));
}

}  // namespace divisi
