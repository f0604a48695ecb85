// Task: a pipeline of middleware that runs in iterations, and the events around it.
//
//   auto running = divisi::task.start({.ctx = std::make_shared<MyContext>()});
//   divisi::task.on("greeting", [](std::string text) { print(text); });
//   divisi::task.use([](MyContext& ctx) { divisi::task.emit("greeting", "Hi"); });
//   divisi::task.run(10);
//   // leaving the scope stops the task: queued events run, the pipeline is cleared
//
// One iteration runs the forward part of every middleware in the order of use(), then the backward
// part of those that suspended (middleware.h), in reverse. Then the context is renewed.
//
// `divisi::task` is one object in a process. Further Task objects may be made; all share the
// process's router, so under Parallel their events travel too.
//
// Threads: every member may be called from any thread, also from middleware and listeners;
// exceptions are said there. Listeners run on the task's own loop, one after another, never on a
// thread that does network I/O (unless they ask to, ListenOptions::inline_).
//
// Errors: an exception of a middleware leaves run(). What a listener throws is raised by the next
// emit, sync, end of an iteration, or by stop() after its work is done. Calls outside
// start...stop throw UsageError.
#pragma once

#include "divisi/context.h"
#include "divisi/delivery.h"
#include "divisi/detail/task_options.h"
#include "divisi/error.h"
#include "divisi/event.h"
#include "divisi/export.h"
#include "divisi/middleware.h"
#include "divisi/parallel.h"
#include "divisi/payload.h"

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace divisi {

namespace detail {
class FrontEnd;
}
namespace runtime {
class Expected;
class Router;
class Session;
class TaskCore;
struct Suspended;
}  // namespace runtime

class Running;

// The backward part of a middleware that suspended. Calling it runs the part now; if it is never
// called, the part runs in the backward phase of the iteration. For a middleware that did not
// suspend, and after the first call, it does nothing.
class DIVISI_API Back {
 public:
  Back() noexcept = default;
  // Runs the part, unless it has run.
  void operator()() const;
  // True while the part is still to run.
  explicit operator bool() const noexcept;

 private:
  friend class runtime::Session;
  std::weak_ptr<runtime::Session> session_;
  std::weak_ptr<runtime::Suspended> suspended_;
};

// An event that will be waited for, made by Task::expect. The first one that comes from then on is
// kept for wait(). When the object goes, nobody listens any more.
class DIVISI_API Expectation {
 public:
  Expectation(Expectation&&) noexcept = default;
  Expectation& operator=(Expectation&&) noexcept = default;

  // As Task::wait_for; at once if the event has come. A wait that returned nothing may be repeated.
  // UsageError: the event was given to an earlier wait, another thread waits, or this object was
  // moved from. After the task's stop only what came before it is given.
  std::optional<Args> wait(WaitForOptions options = {});

 private:
  friend class Task;
  explicit Expectation(std::shared_ptr<runtime::Expected> expected) noexcept
      : expected_(std::move(expected)) {}
  std::shared_ptr<runtime::Expected> expected_;
};

class DIVISI_API Task {
 public:
  Task();
  // The options are used by the implicit start of the first use(), on() and the like.
  explicit Task(StartOptions options);
  // For tests of the library: a task on another router than the process's own.
  explicit Task(runtime::Router& router, StartOptions options = {});
  // Stops a task that still runs; errors are logged.
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // --- life ---
  // Begins a fresh life with an empty pipeline. The returned guard stops the task when it goes,
  // whatever happened. Throws UsageError while the task runs.
  [[nodiscard]] Running start(StartOptions options = {});

  // start, body, stop. What `body` throws is passed on, after the stop.
  template <class F>
  void with(StartOptions options, F&& body);

  // In this order: on_finish hooks; `finish` to the peers; no more emits; queued events run; what
  // was sent is flushed while it is acknowledged; the pool is joined; everything is cleared. Each
  // wait is bounded by stop_timeout. Then a stored error is thrown. Nothing when not running.
  void stop();

  // Called once, right before stop, in every case (also when an exception ended the run) but one:
  // a task that was started implicitly and that main did not stop. What main owned is gone then.
  Task& on_finish(std::function<void(Context&)> hook);

  bool running() const noexcept;         // between start and the end of stop
  bool async_mode() const noexcept;      // of StartOptions
  int n_async_workers() const noexcept;  // of StartOptions

  // --- pipeline ---
  // A VoidMiddleware, and one whose filter_labels do not match, is not registered. A task that was
  // never started is started first, with the options of its constructor. If it is the task of the
  // process, the end of main stops it: queued events run, unless main threw.
  Task& use(Middleware fn, UseOptions options = {});
  // Applies the wrapper to every middleware, registered already or later. Both names mean it:
  Task& use_wrapper(Wrapper wrapper);
  Task& use_step_wrapper(Wrapper wrapper) { return use_wrapper(std::move(wrapper)); }
  // A middleware that use() skips.
  static Middleware void_middleware() { return VoidMiddleware{}; }
  // How many are registered.
  std::size_t middleware_count() const;

  // Several middleware as one. serial: one after another in the calling thread. parallel: at the
  // same time on the pool, joined before the end, not allowed in async mode.
  template <class... M>
  Middleware serial(M&&... parts) {
    return serial_of("serial", list_of(std::forward<M>(parts)...));
  }
  // The old name of serial.
  template <class... M>
  Middleware sequence(M&&... parts) {
    return serial_of("sequence", list_of(std::forward<M>(parts)...));
  }
  // See serial.
  template <class... M>
  Middleware parallel(M&&... parts) {
    return parallel_of(list_of(std::forward<M>(parts)...));
  }

  // Makes `fn` callable from inside another middleware: `Back back = wrapped(ctx); ... back();`.
  Wrapped wrap(Middleware fn, Lock lock = {});

  // Runs until `finish` is set or `max_step` iterations are done; `finish` is true then. Returns at
  // once when there is no middleware. Rethrows what a middleware throws: backward parts of that
  // iteration do not run, suspended middleware are unwound in reverse order.
  void run(std::int64_t max_step = kForeverSteps);

  // One middleware, registered or not, up to its suspension or end. In async mode it is submitted
  // to the pool and the result is empty. `ctx`: default the current one.
  Back forward(Middleware fn, Context* ctx = nullptr, std::optional<bool> async_mode = {});
  // The backward parts, last in first out. In async mode one job does all of them.
  Task& backward(std::optional<bool> async_mode = {});
  // Those in `stack` only, from its end; it is empty afterwards. An empty stack means all.
  Task& backward(std::vector<Back>& stack, std::optional<bool> async_mode = {});
  // How many backward parts wait.
  std::size_t backward_stack_size() const;

  // Replaces the context by its successor, as the end of an iteration does.
  Task& renew();
  // Waits for everything submitted to the pool and throws the first failure. Not from a job of
  // the pool itself.
  Task& sync();

  // A job on the pool that the next sync() joins. Throws UsageError when there is no pool: it
  // exists in async mode, under a router, and after parallel().
  template <class F, class... A>
  Task& async_executor(F&& fn, A&&... args) {
    auto call = [fn = std::forward<F>(fn), ... args = std::forward<A>(args)]() mutable {
      std::invoke(std::move(fn), std::move(args)...);
    };
    // Shared, because what is given may be movable only.
    submit([job = std::make_shared<decltype(call)>(std::move(call))] { (*job)(); });
    return *this;
  }

  // --- state ---
  // The context of this iteration. Throws UsageError when it is no T.
  Context& ctx() const { return *shared_ctx(); }
  template <std::derived_from<Context> T>
  T& ctx() const {
    return detail::context_as<T>(ctx());
  }
  std::shared_ptr<Context> shared_ctx() const;  // also after stop

  bool finish() const noexcept;  // the run ends after this iteration
  // Peers are told when the task stops.
  void set_finish(bool finish = true);

  // `standalone`, or `distributed`, `node.<id>` and the launcher's; `async`; those of StartOptions.
  std::set<std::string> labels() const;
  // Whether one of the globs matches one of the labels.
  bool match_labels(std::string_view pattern) const;
  bool match_labels(const std::vector<std::string>& patterns) const;
  bool match_labels(std::initializer_list<std::string_view> patterns) const;

  std::set<std::string> roles() const;  // those that were added
  // Peers are told, so that Target::to_role finds us.
  Task& add_role(std::string_view role);
  // True for every role while none was added.
  bool has_role(std::string_view role) const;

  // The router of the process: who we are in the job, peers, counters (parallel.h).
  Parallel& router() const noexcept;
  // How many addresses this node dials. The second spelling is DI-engine's:
  int get_attach_to_len() const;
  int get_attch_to_len() const { return get_attach_to_len(); }

  // --- events ---
  // To the local listeners and, under an active router, to the peers. The first argument may say
  // where to, and how:
  //   task.emit("e", 1, kw("x", 2));
  //   task.emit("e", divisi::only_remote, 1);
  //   task.emit("e", divisi::Target::to_node(3), 1);
  //   task.emit("e", divisi::EmitOptions{.policy = divisi::Policy::kLatestOnly}, 1);
  // A directed emit reaches this node's own listeners only if it is meant as well; a one-of emit
  // goes to peers only. Arguments are encoded once, and only if they leave the process.
  template <class... A>
  void emit(std::string_view event, A&&... args) {
    if constexpr (sizeof...(A) == 0) {
      emit_with(event, EmitOptions{});
    } else {
      emit_first(event, std::forward<A>(args)...);
    }
  }
  // To the peers only.
  template <class... A>
  void emit_remote(std::string_view event, A&&... args) {
    emit_with(event, only_remote, std::forward<A>(args)...);
  }

  // Local emits and those of peers, each once for each listener. off() and wait_for(): event.h.
  template <class F>
  ListenerId on(std::string_view event, F&& fn, ListenOptions options = {}) {
    return listen(event, detail::make_listener(std::forward<F>(fn)), options, false);
  }
  // As on(), for the first one only.
  template <class F>
  ListenerId once(std::string_view event, F&& fn, ListenOptions options = {}) {
    return listen(event, detail::make_listener(std::forward<F>(fn)), options, true);
  }
  // Removes listeners, as EventLoop::off does.
  void off(std::string_view pattern);
  void off(std::string_view pattern, ListenerId id);
  template <class R, class... P>
  void off(std::string_view pattern, R (*function)(P...)) {
    off_function(pattern, reinterpret_cast<const void*>(function));
  }
  // Whether the event has a listener here.
  bool listened(std::string_view event) const;

  // Nothing: timeout, cancelled, stopped, the task failed, or (if asked for) it finishes. The
  // event must come from another thread or node.
  std::optional<Args> wait_for(std::string_view event, WaitForOptions options = {});

  // Before an emit whose answer has a name of its own, which a peer could give before it knows that
  // somebody waits:
  //   auto reply = task.expect("reply_17"); task.emit("ask", 17); reply.wait();
  [[nodiscard]] Expectation expect(std::string_view event);

  // The error of a listener that has not been raised yet, or null.
  std::exception_ptr stored_error() const;

 private:
  friend class Running;
  friend class runtime::TaskCore;
  friend class detail::FrontEnd;

  template <class... M>
  static std::vector<Middleware> list_of(M&&... parts) {
    std::vector<Middleware> list;
    (list.emplace_back(std::forward<M>(parts)), ...);
    return list;
  }
  Middleware serial_of(std::string_view kind, std::vector<Middleware> parts);
  Middleware parallel_of(std::vector<Middleware> parts);
  void submit(std::function<void()> job);

  template <class First, class... A>
  void emit_first(std::string_view event, First&& first, A&&... args) {
    using Plain = std::remove_cvref_t<First>;
    if constexpr (std::same_as<Plain, EmitOptions>) {
      emit_with(event, first, std::forward<A>(args)...);
    } else if constexpr (std::same_as<Plain, Target>) {
      emit_with(event, EmitOptions{.to = std::forward<First>(first)}, std::forward<A>(args)...);
    } else {
      emit_with(event, EmitOptions{}, std::forward<First>(first), std::forward<A>(args)...);
    }
  }

  template <class... A>
  void emit_with(std::string_view event, const EmitOptions& options, A&&... args);

  class Emitting;  // one emit under way: keeps the session alive
  ListenerId listen(std::string_view event, std::unique_ptr<detail::Listener> listener,
                    ListenOptions options, bool once);
  void off_function(std::string_view pattern, const void* function);
  std::uint64_t begin(StartOptions options);
  void end(std::uint64_t life, bool failed);

  const std::unique_ptr<runtime::TaskCore> core_;
};

// Where an emit goes. One object per call, on the stack of emit().
class DIVISI_API Task::Emitting {
 public:
  // Throws UsageError when the task is not started, and a stored error.
  Emitting(Task& owner, std::string_view event, const EmitOptions& options);
  ~Emitting();
  Emitting(const Emitting&) = delete;
  Emitting& operator=(const Emitting&) = delete;

  bool remote() const noexcept { return remote_; }
  bool local() const noexcept { return local_; }
  void send(const PayloadView& payload);
  [[noreturn]] void refuse() const;  // the arguments cannot travel
  void deliver(detail::Emission& emission);

 private:
  Task& task_;
  runtime::Session* session_ = nullptr;
  const std::string_view event_;
  const EmitOptions& options_;
  bool remote_ = false;
  bool local_ = false;
};

template <class... A>
void Task::emit_with(std::string_view event, const EmitOptions& options, A&&... args) {
  Emitting emitting(*this, event, options);
  if (emitting.remote()) {
    if constexpr (is_packable_v<A...>) {
      PackScratch scratch;
      emitting.send(pack_args(scratch, std::as_const(args)...));
    } else {
      emitting.refuse();
    }
  }
  if (emitting.local()) {
    detail::with_emission([&](detail::Emission& emission) { emitting.deliver(emission); },
                          std::forward<A>(args)...);
  }
}

// Stops the task when it goes. Leaving the scope by an exception stops as well; while
// auto-recovery has retries left, the peers are not told to finish then.
class DIVISI_API Running {
 public:
  Running(Running&& other) noexcept
      : task_(std::exchange(other.task_, nullptr)), life_(other.life_), entered_(other.entered_) {}
  Running& operator=(Running&&) = delete;
  ~Running() noexcept(false);

  // The task that runs:
  Task& operator*() const noexcept { return *task_; }
  Task* operator->() const noexcept { return task_; }

  // The same, here and now.
  void stop();

 private:
  friend class Task;
  Running(Task& owner, std::uint64_t life) noexcept;
  Task* task_;
  std::uint64_t life_;  // a later start of the same task is not ours to stop
  int entered_;         // exceptions in flight when the scope was entered
};

template <class F>
void Task::with(StartOptions options, F&& body) {
  const Running running = start(std::move(options));
  std::invoke(std::forward<F>(body));
}

// The task of this process.
extern DIVISI_API Task& task;

}  // namespace divisi
