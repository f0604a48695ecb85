#include "runtime/worker.h"

#include "base/log.h"
#include "divisi/detail/front_end.h"
#include "runtime/exit_code.h"
#include "runtime/finish_watcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <thread>
#include <unistd.h>
#include <utility>

namespace divisi::runtime {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A main that fails as soon as it is called would otherwise fill the disk with its failures.
constexpr std::chrono::milliseconds kShortAttempt = 1s;
constexpr std::chrono::milliseconds kFirstPause = 10ms;
constexpr std::chrono::milliseconds kLongestPause = 1s;

WorkerHooks& installed_hooks() {
  static auto* const hooks = new WorkerHooks;  // outlives static objects that still use it
  return *hooks;
}

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : type.name();
}

WorkerOutcome not_joined(const Status& status) {
  using Kind = WorkerOutcome::Kind;
  WorkerOutcome outcome{Kind::kBindFailed, kExitNoJoin, status.message(), nullptr};
  switch (status.code()) {
    case Code::kUnauthorized:
    case Code::kForbidden:
    case Code::kConflict:
    case Code::kAlreadyExists: outcome.kind = Kind::kRefused; break;
    case Code::kTimeout: outcome.kind = Kind::kJoinTimeout; break;
    case Code::kInvalid:
    case Code::kNotFound:
      outcome.kind = Kind::kUsage;
      outcome.exit_code = kExitUsage;
      break;
    default: break;
  }
  return outcome;
}

void main_ended(bool failed) {
  if (const auto& hook = worker_hooks().main_ended) hook(failed);
}

// The exception of main is the one to tell; what comes after it is logged.
void end_failed_main() {
  try {
    main_ended(true);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    log::error("after main had failed: {}", describe_exception(std::current_exception()));
  }
}

// A child that main has forked and that left main is not the worker: it must not say goodbye to the
// peers, nor tell the launcher how it ended.
void leave_if_forked(pid_t worker, const WorkerOutcome& outcome) {
  if (::getpid() == worker) return;
  if (outcome.exit_code != 0) {
    log::error("process {}, a fork of this worker, left main: {}", ::getpid(), outcome.text);
  }
  std::fflush(nullptr);
  ::_exit(outcome.exit_code);
}

// One call of main. Thread cancellation is no failure of main: it goes on unwinding.
WorkerOutcome attempt(const WorkerConfig& config, const MainFunction& main) {
  const pid_t worker = ::getpid();
  WorkerOutcome outcome;
  try {
    const int code = main(config.args);
    if (::getpid() != worker)
      leave_if_forked(worker, {{}, code, fmt::format("it returned {}", code), {}});
    main_ended(false);
    if (code == 0) return outcome;
    outcome.text = fmt::format("main returned {}", code);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    outcome.exception = std::current_exception();
    outcome.text = describe_exception(outcome.exception);
    leave_if_forked(worker, {{}, kExitMainFailed, outcome.text, {}});
  }
  if (outcome.exception != nullptr) end_failed_main();
  outcome.kind = WorkerOutcome::Kind::kFailed;
  outcome.exit_code = kExitMainFailed;
  return outcome;
}

}  // namespace

void set_worker_hooks(WorkerHooks hooks) {
  installed_hooks() = std::move(hooks);
}

const WorkerHooks& worker_hooks() {
  return installed_hooks();
}

std::string describe_exception(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const divisi::detail::MainFailed& error) {
    return error.what();
  } catch (const std::exception& error) {
    std::string text = fmt::format("{}: {}", type_name(typeid(error)), error.what());
    try {
      std::rethrow_if_nested(error);
    } catch (...) {
      text += "; caused by " + describe_exception(std::current_exception());
    }
    return text;
  } catch (const std::string& thrown) {
    return "std::string: " + thrown;
  } catch (const char* thrown) {
    return fmt::format("const char*: {}", thrown);
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    return type == nullptr ? "an exception of unknown type" : type_name(*type);
  }
}

WorkerOutcome run_worker(const WorkerConfig& config, const MainFunction& main,
                         const std::function<void()>& on_joined,
                         const FinishWithin& finish_within) {
  const WorkerHooks& hooks = worker_hooks();
  if (config.startup_delay.count() > 0) std::this_thread::sleep_for(config.startup_delay);
  if (hooks.activate) {
    if (const Status status = hooks.activate(config); !status.ok()) return not_joined(status);
  }
  if (on_joined) on_joined();

  auto began = Clock::now();
  std::chrono::milliseconds pause = 0ms;
  WorkerOutcome outcome = attempt(config, main);
  // Only exceptions are worth another try: a main that returns an error has decided.
  for (int retries = 0; outcome.exception != nullptr && config.auto_recover; ++retries) {
    if (config.max_retries != kUnlimitedRetries && retries >= config.max_retries) break;
    if (finish_within && finish_within(0ms)) break;
    const bool was_short = Clock::now() - began < kShortAttempt;
    pause = was_short ? std::clamp(2 * pause, kFirstPause, kLongestPause) : 0ms;
    log::warning("main failed, trying again retries={} error=\"{}\"", retries + 1, outcome.text);
    if (finish_within && finish_within(pause)) break;
    outcome.exception = nullptr;
    began = Clock::now();
    if (hooks.next_attempt) hooks.next_attempt(retries + 1);
    outcome = attempt(config, main);
  }
  if (hooks.deactivate) {
    const Status left = hooks.deactivate(outcome.kind != WorkerOutcome::Kind::kDone);
    if (!left.ok() && outcome.kind == WorkerOutcome::Kind::kDone) {
      outcome.kind = WorkerOutcome::Kind::kUndelivered;
      outcome.exit_code = kExitMainFailed;
      outcome.text = left.message();
    }
  }
  if (const auto unseen = hooks.unseen_error ? hooks.unseen_error() : nullptr) {
    const std::string text = "a listener of the router failed: " + describe_exception(unseen);
    if (outcome.kind != WorkerOutcome::Kind::kDone) {
      log::error("{}", text);
      return outcome;
    }
    outcome.kind = WorkerOutcome::Kind::kFailed;
    outcome.exit_code = kExitMainFailed;
    outcome.exception = unseen;
    outcome.text = text;
  }
  return outcome;
}

InlineOutcome run_worker_inline(const WorkerConfig& config, const MainFunction& main,
                                const SignalWatch* signals) {
  const WorkerHooks& hooks = worker_hooks();
  if (hooks.forget_finish) hooks.forget_finish();
  std::atomic<bool> in_main{false};
  FinishWatcher watcher({
      .on_finish =
          [&hooks](int) {
            if (hooks.request_finish) hooks.request_finish();
          },
      .signals = signals,
      .grace = config.finish_grace,
      .on_overdue =
          [&config, &in_main](int signal) {
            if (const std::string path = ipc_path(config.listen); !path.empty()) {
              ::unlink(path.c_str());
            }
            if (in_main) log::error("main did not end after signal {}: exiting", signal);
            ::_exit(exit_code_of_signal(signal));
          },
  });
  InlineOutcome result;
  result.outcome = run_worker(
      config, main, [&] { in_main = true; },
      [&](std::chrono::milliseconds time) { return watcher.finish_within(time); });
  result.signal = watcher.signal();
  return result;
}

}  // namespace divisi::runtime
