// What a front end in another language needs of the runtime, beside the public API. Python's is
// python/native. Not for programs: anything here may change with any version.
//
// Arguments of such a language stay its own objects inside the process: the front end brings its
// own Listener (listener.h) and Emission (emission.h), and packs only what leaves the process.
#pragma once

#include "divisi/detail/listener.h"
#include "divisi/detail/task_options.h"
#include "divisi/detail/waiting.h"
#include "divisi/export.h"
#include "divisi/payload.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace divisi {

class EventLoop;
class Parallel;
class Task;
struct ParallelOptions;

namespace runtime {
class Expected;
}

namespace detail {

class Emission;

// One emit: packed at most once, before it is sent, and given to local listeners afterwards.
class DIVISI_API Outgoing {
 public:
  virtual ~Outgoing() = default;
  virtual const PayloadView& pack() = 0;
  virtual void sent() noexcept = 0;  // after pack(), whatever happened to the send
  virtual Emission& emission() = 0;
};

enum class Waited { kEvent, kTimeout, kNothing, kInterrupted };

struct WaitCall {
  std::string_view event;  // not looked at, as `capture`, for one that was expected
  std::chrono::nanoseconds timeout;
  bool wake_on_finish = false;
  std::shared_ptr<Capture> capture;
  Sleeper* sleeper = nullptr;
  std::function<void()> registered;  // called once, when no event is missed any more
};

// What a worker's main threw, in the words of its language: what() is all there is to say.
class DIVISI_API MainFailed : public std::runtime_error {
 public:
  explicit MainFailed(const std::string& text) : std::runtime_error(text) {}
};

// What the workers of a front end run.
struct ForeignMain {
  std::vector<std::string> command;  // starts one worker: a program and its arguments
  std::string entry;                 // for the worker: what to run, as the front end likes
  std::function<int()> call;         // for a single worker, which is this process
};

// What a spawned worker was told to run.
struct ForeignEntry {
  std::string entry;     // of ForeignMain
  std::string module;    // of ditask: `module` and `function`, to be looked for
  std::string function;  //   in `search_path` before anywhere else
  std::vector<std::string> search_path;
};

// A secret file, read by the rules of ditask; `warning` is empty or for the log.
struct SecretFile {
  std::string value;
  std::string warning;
};

struct NodeSpec {
  std::string listen;
  std::vector<std::string> attach_to;
  int node_id = 0;
  std::set<std::string> labels;
  std::string job_id;
  std::string secret;
  bool allow_pickle = false;
  std::chrono::milliseconds join_timeout{60'000};
};

class DIVISI_API FrontEnd {
 public:
  // Called on threads that run listeners, after each batch of them (src/event/strand.h).
  static void set_rest_hook(void (*hook)() noexcept);

  // --- loops ---
  static Waited wait(EventLoop& loop, const WaitCall& call);
  static void off(EventLoop& loop, std::string_view pattern, const void* function);

  // --- tasks; the pipeline is the front end's own ---
  static void start(Task& task, StartOptions options);
  static void stop(Task& task, bool failed);
  // A step failed: waits end, and those that begin later return at once.
  static void fail(Task& task);
  // The calling thread runs that step of an async iteration (numbers rise, 0 is none); gives the
  // step before. A wait takes what later steps of its iteration emitted before it.
  static std::uint64_t enter_step(Task& task, std::uint64_t step);
  static void end_iteration(Task& task);
  static void raise_stored(Task& task);
  static void ready(Task& task);
  static ListenerId listen(Task& task, std::string_view event, std::unique_ptr<Listener> listener,
                           bool once);
  static void off(Task& task, std::string_view pattern, const void* function);
  static void emit(Task& task, std::string_view event, const EmitOptions& options,
                   Outgoing& outgoing);
  static Waited wait(Task& task, const WaitCall& call);
  // The two steps of a wait, see Task::expect.
  static std::shared_ptr<runtime::Expected> expect(Task& task, std::string_view event,
                                                   std::shared_ptr<Capture> capture);
  static Waited wait(runtime::Expected& expected, const WaitCall& call);

  // --- the router ---
  static ListenerId listen(Parallel& router, std::string_view event,
                           std::unique_ptr<Listener> listener, bool once);
  static void forget(Parallel& router, std::string_view event, ListenerId id);
  // May payloads be pickled? They must be proven to come from the job, or be allowed.
  static bool accepts_pickle();
  // The two halves of a call, and the answer of a function that others call.
  static std::uint64_t begin_call();
  static Value finish_call(std::uint64_t call, int node_id, std::string_view name,
                           const PayloadView& request, std::chrono::milliseconds timeout);
  static void answer(int node_id, std::uint64_t call, bool ok, const Value& value);

  // --- workers ---
  // As Parallel::Runner, with workers of the front end's own making.
  static void run(const ParallelOptions& options, const ForeignMain& main);
  // True in a process that was started as a worker and has not run its main yet.
  static bool is_spawned();
  // Runs it and gives the exit code. `resolve` finds the function before the node joins; it throws
  // UsageError when there is none. main throws MainFailed to be tried again under auto_recover.
  static int run_spawned(
      const std::function<std::function<int()>(const ForeignEntry& entry)>& resolve);

  // Throws UsageError that begins with `option`, which named the file.
  static SecretFile read_secret_file(const std::string& path, std::string_view option);

  // A node without a worker around it, until close_node().
  static void open_node(const NodeSpec& spec);
  static void close_node();
};

}  // namespace detail
}  // namespace divisi
