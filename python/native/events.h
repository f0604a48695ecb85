// Listeners, emits and waits of Python (divisi/detail/front_end.h).
#pragma once

#include "divisi/detail/emission.h"
#include "divisi/detail/front_end.h"
#include "divisi/detail/listener.h"
#include "interpreter.h"
#include "payload.h"

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string_view>

namespace divisi::python {

// The arguments of a local emit, as they wait in the queue: one argument for the runtime.
struct LocalArguments {
  Call call;
};

// Calls a Python function.
class PythonListener final : public detail::Listener {
 public:
  explicit PythonListener(PyObject* fn) : fn_(Object::share(fn)) {}

  void call(const detail::LocalCall& call) override;
  void call(const PayloadView& payload) override;
  bool is(const void* other) const noexcept override {
    return same_callable(fn_.get(), static_cast<PyObject*>(const_cast<void*>(other)));
  }

 private:
  void call_with(PyObject* args, PyObject* kwargs) const;
  const Object fn_;
};

// One emit. Lives while the emitting thread is inside it; holds the interpreter's lock except
// between pack() and sent().
class PythonOutgoing final : public detail::Outgoing {
 public:
  PythonOutgoing(std::string_view event, PyObject* args, PyObject* kwargs);
  const PayloadView& pack() override;
  void sent() noexcept override { unlock_.reset(); }
  detail::Emission& emission() override;

 private:
  const std::string_view event_;
  PyObject* const args_;
  PyObject* const kwargs_;
  PackScratch scratch_;
  std::optional<Unlock> unlock_;
  std::optional<LocalArguments> arguments_;
  std::optional<detail::TypedEmission<LocalArguments&&>> emission_;
};

// Keeps what a wait ended with.
class PythonCapture final : public detail::Capture {
 public:
  void take(const detail::LocalCall& call) override;
  void take(const PayloadView& payload) override;
  Call& call() noexcept { return call_; }

 private:
  Call call_;  // written by the loop, read by the waiter once the wait is over
};

// How Python's main thread sleeps: a signal's handler runs at once, and what it raises (a Ctrl-C)
// ends the wait. Signals are blocked from the time this is made, except while it sleeps, so that
// none falls between the look for one and the sleep.
class SignalSleeper final : public detail::Sleeper {
 public:
  SignalSleeper();  // throws PythonError if a handler has raised already
  ~SignalSleeper() override;
  SignalSleeper(const SignalSleeper&) = delete;
  SignalSleeper& operator=(const SignalSleeper&) = delete;

  Slept sleep(std::chrono::steady_clock::time_point deadline) override;
  void wake() noexcept override;
  const std::optional<PythonError>& raised() const noexcept { return raised_; }

  static bool is_needed();  // the calling thread is the one that runs signal handlers

 private:
  const int fd_;
  sigset_t before_{};
  std::optional<PythonError> raised_;
};

// Waits with the lock released, but not before the wait is registered; (args, kwargs), None, or a
// PythonError. `wait` is FrontEnd::wait for a loop or a task; `timeout` in seconds, infinity
// included.
template <class Target>
Object wait_for(Target& target, std::string_view event, double timeout, bool wake_on_finish,
                bool ignore_timeout);

// The object of Task.expect.
class Expectation {
 public:
  Expectation(Task& task, std::string_view event);
  ~Expectation() { close(); }
  Expectation(const Expectation&) = delete;
  Expectation& operator=(const Expectation&) = delete;

  Object wait(double timeout, bool wake_on_finish, bool ignore_timeout);
  void close();  // nobody listens any more

 private:
  const std::string event_;
  const std::shared_ptr<PythonCapture> capture_ = std::make_shared<PythonCapture>();
  std::shared_ptr<runtime::Expected> expected_;
};

std::string_view event_name(PyObject* name);

}  // namespace divisi::python
