// Middleware: one step of a task's pipeline. Any callable that takes the context.
//
//   task.use([](divisi::Context& ctx) { ... });                  // plain
//   task.use([](MyContext& ctx) {                                // a context of your own
//     auto start = now();
//     divisi::suspend();                                         // the rest of the pipeline runs
//     log(now() - start);                                        // on the way back
//   });
//   task.use(divisi::named("learn", learn));                     // the name in logs and timers
//
// A Middleware is a handle: copies share the callable. It may be called from any thread, one
// call at a time unless the callable itself allows more.
#pragma once

#include "divisi/context.h"
#include "divisi/detail/task_callable.h"
#include "divisi/export.h"

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace divisi {

// Ends the forward part of the middleware that runs on the calling thread; what follows runs in
// the backward phase, in the reverse order of the forward parts, maybe on another thread. So hold
// no lock and no thread id across it. A second call in one middleware never returns: the
// middleware is unwound there, and a warning is logged once. Throws UsageError outside a
// middleware.
DIVISI_API void suspend();

// Does nothing, and Task::use() skips it: what a factory returns on the nodes where its
// middleware has no work.
struct VoidMiddleware {
  void operator()(Context&) const {}  // does nothing
};

class DIVISI_API Middleware {
 public:
  // What every callable becomes.
  using Function = std::function<void(Context&)>;

  // Named after the type of the callable, or after the symbol of a function.
  template <class F>
    requires(!std::is_same_v<std::decay_t<F>, Middleware>)
  Middleware(F&& fn)  // NOLINT(google-explicit-constructor): lambdas are passed as middleware
      : Middleware(detail::step_name(fn), std::forward<F>(fn)) {}

  // Under a name of its own, as named() does.
  template <class F>
  Middleware(std::string name, F&& fn)
      : Middleware(std::move(name), detail::step_function(std::forward<F>(fn)),
                   std::is_same_v<std::decay_t<F>, VoidMiddleware>) {}

  // What logs and timers call it.
  const std::string& name() const noexcept;
  // Made of a VoidMiddleware.
  bool is_void() const noexcept;

  // The same step under another name.
  Middleware renamed(std::string name) const;

  // Runs the callable as part of the calling middleware: if it suspends, the caller suspends with
  // it. To tell the two parts apart, use a MiddlewareCall.
  void operator()(Context& ctx) const;

 private:
  friend class MiddlewareCall;
  struct State;

  Middleware(std::string name, Function fn, bool is_void);

  std::shared_ptr<State> state_;
};

// Gives a middleware its name: named("collect", fn).
template <class F>
Middleware named(std::string name, F&& fn) {
  return Middleware(std::move(name), std::forward<F>(fn));
}

// Maps a middleware to a middleware that does something around it, see Task::use_wrapper().
using Wrapper = std::function<Middleware(Middleware)>;

// One run of a middleware, part by part. What wrappers use:
//
//   MiddlewareCall call(fn, ctx);
//   if (call.forward()) {        // it suspended
//     divisi::suspend();         // so do we
//     call.backward();
//   }
//
// Exceptions of the middleware leave forward() and backward(). Destroying a call that is
// suspended unwinds it.
class DIVISI_API MiddlewareCall {
 public:
  // Runs nothing yet. `ctx` must outlive the call.
  MiddlewareCall(Middleware fn, Context& ctx);
  MiddlewareCall(MiddlewareCall&&) noexcept;
  MiddlewareCall& operator=(MiddlewareCall&&) noexcept;
  ~MiddlewareCall();

  bool forward();                   // to the suspension (true) or the end (false); once
  void backward();                  // the part after the suspension; nothing when there is none
  bool suspended() const noexcept;  // forward() is over, backward() is to come
  const std::string& name() const noexcept;  // of the middleware

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace divisi
