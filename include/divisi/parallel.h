// Parallel: one `main` in several processes that hear each other's events.
//
//   void greet() {
//     auto running = divisi::task.start();
//     if (divisi::task.router().node_id() == 0) divisi::task.on("greeting", [](std::string m)
//     {...}); else divisi::task.emit("greeting", "Hi"); divisi::task.run(10);
//   }
//   DIVISI_MAIN(greet)
//   int main() { return divisi::Parallel::runner({.n_parallel_workers = 2}).run(greet); }
//
// Parallel::instance() is the router of this process: inactive until a runner (or ditask) has made
// the process a node of a job. Every member may be called from any thread.
#pragma once

#include "divisi/delivery.h"
#include "divisi/detail/served.h"
#include "divisi/error.h"
#include "divisi/event.h"
#include "divisi/export.h"
#include "divisi/main.h"
#include "divisi/payload.h"
#include "divisi/subscription.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace divisi {

namespace detail {
class FrontEnd;
}

// Everything has a default but the number of workers. A wrong value is a UsageError that names it.
struct ParallelOptions {       // NOLINT(clang-analyzer-optin.performance.Padding): in reading order
  int n_parallel_workers = 0;  // 1 or more
  std::string mq_type = "nng";              // the native transport; "divisi" means the same
  std::vector<std::string> attach_to = {};  // addresses every worker dials besides the topology
  std::string protocol = "ipc";             // ipc, tcp
  std::string address = {};                 // tcp: host to listen on; empty: detected
  std::vector<int> ports = {};              // tcp: none or one counts up (from 50515)
  std::string topology = "mesh";            // mesh, star, alone
  std::set<std::string> labels = {};        // of all workers of this runner
  std::vector<int> node_ids = {};           // none or one counts up (from 0)
  bool auto_recover = false;                // call main again in place after an exception
  int max_retries = -1;                     // of auto_recover; -1: without limit
  std::chrono::milliseconds startup_interval{0};  // between the starts of two workers; not needed

  std::string job_id = {};                         // nodes of different jobs refuse each other
  std::string secret = {};                         // nodes prove to each other that they hold it
  bool allow_pickle = false;                       // take pickles also without a secret
  std::chrono::milliseconds join_timeout{60'000};  // for the peers that main waits for
  std::chrono::milliseconds send_timeout{30'000};  // of an emit to a peer whose queue is full
  std::uint64_t queue_bytes = std::uint64_t{64} << 20;       // for each link and direction
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;     // for all links together
  std::uint64_t max_message_bytes = std::uint64_t{1} << 30;  // of one event
  Policy send_policy = Policy::kBlock;                       // of emits that do not choose one
  std::string codec = "native";                              // of arguments; there is no other
  std::string worker_lost = "fail";                          // fail, ignore, restart
  int max_restarts = 3;                                      // of one worker, under restart
  std::string hub_lost = "ignore";                           // star: ignore, finish
  bool relay = false;      // a hub hands the events of one leaf on to the others
  int expected_nodes = 0;  // of the whole job: main waits for all that the topology links

  std::chrono::milliseconds grace{5'000};  // between asking workers to end and killing them
  std::string log_dir = {};                // one file a node
  std::string log_level = "info";          // debug, info, warning, error, off
  // Every event carries an id, and both sides log a line: what, to or from whom, how many bytes,
  // how long it waited. The variable DIVISI_TRACE=1 does the same. For looking closely, not for
  // speed.
  bool trace = false;
};

// A run that failed: the text names the node and carries its own message.
class DIVISI_API WorkerError : public Error {
 public:
  // Made by the runner.
  WorkerError(Code code, const std::string& message, int exit_code, int node_id)
      : Error(code, message), exit_code_(exit_code), node_id_(node_id) {}
  // What a command line would exit with: 1 main failed, 2 usage, 3 network, 128 + signal.
  int exit_code() const noexcept { return exit_code_; }
  int node_id() const noexcept { return node_id_; }  // -1: not one node's fault

 private:
  int exit_code_;
  int node_id_;
};

// One peer, as it was when it was asked for.
struct PeerInfo {
  int node_id = 0;               // unique in the job
  std::set<std::string> labels;  // given by its launcher and to its tasks
  std::set<std::string> roles;   // added by its task
  std::string address;           // where it listens
  bool connected = false;        // a connection is up
  bool lost = false;             // not heard for 5 s: emits do not wait for it
  bool ready = false;            // its listeners are made: it gets only what it listens to
};

// What went between us and one peer, since we started.
struct PeerCounters {
  int node_id = 0;                      // unique in the job
  std::uint64_t sent = 0;               // events queued for the peer
  std::uint64_t received = 0;           // events
  std::uint64_t resent = 0;             // frames, after reconnects
  std::uint64_t dropped = 0;            // by policy, or beyond the bound while it was lost
  std::uint64_t undelivered = 0;        // to earlier lives of the peer
  std::uint64_t gaps = 0;               // events the peer said it had dropped for us
  std::uint64_t reconnects = 0;         // connections after the first
  std::uint64_t queued_bytes = 0;       // of events that were not acknowledged yet
  std::uint64_t unacknowledged = 0;     // events
  std::chrono::milliseconds oldest{0};  // about how long the oldest of them has waited
  std::uint64_t refused = 0;  // pickled events of the peer: without a secret and allow_pickle
};

// The same by the name of the event; an event `e` of a task has the topic `task.e`.
struct TopicCounters {
  std::string topic;           // as it is on the wire
  std::uint64_t sent = 0;      // once for each peer
  std::uint64_t received = 0;  // from all peers
  std::uint64_t dropped = 0;   // by policy, or beyond the bound of a lost peer
};

// How long Parallel::call waits.
struct CallOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // TimeoutError afterwards
  std::stop_token stop = {};                                     // a requested stop gives up
};

// All counters of a process.
struct RouterStats {
  std::vector<PeerCounters> peers;    // by node id
  std::vector<TopicCounters> topics;  // by name
  std::uint64_t unlistened = 0;       // arrived, but nobody listened
  std::uint64_t held = 0;             // wait for their first listener
  std::uint64_t undelivered = 0;      // to processes that ended, also those of `peers`
  std::uint64_t gaps = 0;             // that peers dropped for us, also those of `peers`
};

class DIVISI_API Parallel {
 public:
  class Runner;

  // Checks nothing yet: a wrong option is an error of the call that runs.
  static Runner runner(ParallelOptions options);
  // For a program that was started as `ditask ... -- program`: runs main as the node that the
  // DITASK_* variables describe. In any other program the run is a UsageError.
  static Runner runner_from_environment();

  // The router of this process.
  static Parallel& instance();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  // --- who we are ---
  bool is_active() const;                // this process is a node of a job
  int node_id() const;                   // -1 while inactive
  int local_id() const;                  // index within the launcher; -1 while inactive
  int n_parallel_workers() const;        // of this launcher
  std::set<std::string> labels() const;  // given by the launcher
  std::string mq_type() const;           // "nng" while active: the native transport
  std::string address() const;           // where this node listens
  bool interrupted() const;              // a signal, or the launcher, has asked it to end
  bool auto_recover() const;             // as given to the runner
  int max_retries() const;               // as given to the runner; -1: without limit
  int retries() const;                   // how often main has failed and was called again
  // How many addresses this node dials. The second spelling is DI-engine's:
  int get_attach_to_len() const;
  int get_attch_to_len() const { return get_attach_to_len(); }

  // --- events of the router, beside those of tasks ---
  // `peer_joined`, `peer_lost`, `peer_back` and `peer_left` are events too: listeners take (int
  // node_id). The router alone makes them: no peer can send them, and emit refuses these names.
  //
  // What a listener throws, or a payload it cannot take, never stops receiving. The first such
  // error is thrown once, by the next emit outside of the router's listeners; others are logged.
  //
  // The listener stays until the subscription ends (subscription.h): keep it as long as what the
  // listener refers to lives.
  template <class F>
  Subscription on(std::string_view event, F&& fn, ListenOptions options = {}) {
    return subscribe(event, detail::make_listener(std::forward<F>(fn)), options, false);
  }
  // As on(), for the first one only.
  template <class F>
  Subscription once(std::string_view event, F&& fn, ListenOptions options = {}) {
    return subscribe(event, detail::make_listener(std::forward<F>(fn)), options, true);
  }
  // Removes all listeners of the events that match the glob. Does not wait for those that run.
  void off(std::string_view pattern);

  // To every peer that listens; never to ourselves. No-op while inactive.
  template <class... A>
  void emit(std::string_view event, const A&... args) {
    emit_to(SendOptions{}, event, args...);
  }
  // The same to whom the options name.
  template <class... A>
  void emit_to(const SendOptions& options, std::string_view event, const A&... args) {
    PackScratch scratch;
    send(event, pack_args(scratch, args...), options);
  }

  // --- peers ---
  // Waits end at their timeout and when their stop token says so. Those for peers and at a barrier
  // end as well when a signal, or the launcher, has asked this process to end; a call waits for a
  // second then.
  //
  // Everybody this node is linked with, lost ones included.
  std::vector<PeerInfo> peers() const;
  // Waits until `count` peers are connected; false if it gave up.
  bool wait_for_peers(std::size_t count, std::chrono::milliseconds timeout,
                      const std::stop_token& stop = {}) const;
  // Our listeners are made: peers may stop sending what we do not listen to. Called by the first
  // run or wait_for of a task, and by itself ten seconds after the start.
  void ready();
  // Waits until every event so far was received by its peers; false if it gave up.
  bool flush(std::chrono::milliseconds timeout, const std::stop_token& stop = {});
  // Waits until every node that ever joined has called it as often. Throws TimeoutError, or Error
  // with kCancelled, naming those that are missing. Others do not wait for one that is asked to
  // end.
  void barrier(std::chrono::milliseconds timeout = std::chrono::seconds(60),
               const std::stop_token& stop = {});
  // A copy of the counters; cheap enough for every second, not for every event.
  RouterStats stats() const;

  // --- calls with an answer ---
  // Others may call `name`; fn runs on the router's loop. What it returns or throws goes back, and
  // so does a mismatch of the arguments: no call is an error of this node. An answer for a caller
  // that has gone is dropped. Until the subscription ends, as on().
  template <class F>
  Subscription serve(std::string_view name, F fn);

  // Calls `name` on another node. Throws Error (what it threw, arguments it does not take, no such
  // peer, or kCancelled), TimeoutError.
  template <class R = Value, class... A>
  R call(int node_id, std::string_view name, const CallOptions& options, const A&... args) {
    const std::uint64_t id = begin_call();
    PackScratch scratch;
    const PayloadView& request = pack_args(scratch, this->node_id(), id, args...);
    const Value answer = finish_call(id, node_id, name, request, options);
    if constexpr (!std::is_void_v<R>) return answer.template as<R>();
  }
  // The same with a timeout alone.
  template <class R = Value, class... A>
  R call(int node_id, std::string_view name, std::chrono::milliseconds timeout, const A&... args) {
    return call<R>(node_id, name, CallOptions{.timeout = timeout}, args...);
  }

  // --- for the library itself ---
  // As emit_to(), with arguments that are packed already.
  void send(std::string_view topic, const PayloadView& payload, const SendOptions& options);

 private:
  friend class detail::FrontEnd;
  Parallel();
  ~Parallel();  // NOLINT(performance-trivially-destructible)
  friend class Subscription;
  ListenerId add(std::string_view event, std::unique_ptr<detail::Listener> listener,
                 ListenOptions options, bool once);
  Subscription subscribe(std::string_view event, std::unique_ptr<detail::Listener> listener,
                         ListenOptions options, bool once);
  void remove(std::string_view event, ListenerId id);
  std::uint64_t begin_call();
  Value finish_call(std::uint64_t id, int node_id, std::string_view name,
                    const PayloadView& request, const CallOptions& options);
  void answer(int node_id, std::uint64_t id, bool ok, const Value& value);
  template <class F, class... P>
  Subscription serve_typed(std::string_view name, F fn, detail::Params<P...>);
};

// Starts the workers and waits for them.
class DIVISI_API Parallel::Runner {
 public:
  // Made by Parallel::runner().
  explicit Runner(ParallelOptions options) : options_(std::move(options)) {}
  // Made by Parallel::runner_from_environment().
  struct FromEnvironment {};
  explicit Runner(FromEnvironment) : from_environment_(true) {}

  // Throws: UsageError for a wrong option or an unregistered function, WorkerError for a run that
  // failed, what main threw if it ran in this process (one worker).
  template <class F>
  void operator()(F&& main, std::vector<std::string> args = {}) const {
    start(erase(std::forward<F>(main)), std::move(args));
  }

  // The same for the end of main(): prints one line on failure, returns the exit code.
  template <class F>
  int run(F&& main, std::vector<std::string> args = {}) const noexcept {
    return run_reporting(erase(std::forward<F>(main)), std::move(args));
  }

 private:
  struct Main {
    detail::AnyFunction function = nullptr;  // registered by DIVISI_MAIN, for other processes
    std::function<int(const std::vector<std::string>&)> call;  // for this one
  };

  template <class F>
  static Main erase(F&& main) {
    Main erased;
    using Callable = std::decay_t<F>;
    if constexpr (std::is_pointer_v<Callable>) {
      erased.function = reinterpret_cast<detail::AnyFunction>(main);
    }
    erased.call =
        [callable = Callable(std::forward<F>(main))](const std::vector<std::string>& args) mutable {
          return detail::call_main(callable, "main", args);
        };
    return erased;
  }

  void start(const Main& main, std::vector<std::string> args) const;
  int run_reporting(const Main& main, std::vector<std::string> args) const noexcept;

  ParallelOptions options_;
  bool from_environment_ = false;
};

template <class F, class... P>
Subscription Parallel::serve_typed(std::string_view name, F fn, detail::Params<P...>) {
  return subscribe("call." + std::string(name),
                   std::make_unique<detail::ServedListener<F, P...>>(std::move(fn)), {}, false);
}

template <class F>
Subscription Parallel::serve(std::string_view name, F fn) {
  return serve_typed(name, std::move(fn), detail::params_of<F>());
}

}  // namespace divisi
