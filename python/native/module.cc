// The native module behind the Python package: thin classes over the public C++ API. What people
// see, and its documentation, is in python/divisi.
#include "divisi/divisi.h"
#include "events.h"
#include "interpreter.h"
#include "payload.h"
#include "prune.h"
#include "serial.h"
#include "trials.h"
#include "tune.h"

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <mutex>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

namespace nb = nanobind;

namespace divisi::python {
namespace {

using detail::FrontEnd;

// --- errors ---

void set_error(const char* name, const char* text, int exit_code = -1, int node_id = -1) {
  const Object errors = Object::steal(PyImport_ImportModule("divisi.errors"));
  if (!errors) return;
  const Object type = Object::steal(PyObject_GetAttrString(errors.get(), name));
  if (!type) return;
  if (exit_code < 0) {
    PyErr_SetString(type.get(), text);
    return;
  }
  const Object error =
      Object::steal(PyObject_CallFunction(type.get(), "sii", text, exit_code, node_id));
  if (error) PyErr_SetObject(type.get(), error.get());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const PythonError& error) {
    error.restore();
  } catch (const TimeoutError& error) {
    set_error("TimeoutError", error.what());
  } catch (const WorkerError& error) {
    set_error("WorkerError", error.what(), error.exit_code(), error.node_id());
  } catch (const UsageError& error) {
    set_error("UsageError", error.what());
  } catch (const Error& error) {
    set_error(error.code() == Code::kTimeout   ? "TimeoutError"
              : error.code() == Code::kInvalid ? "UsageError"
                                               : "Error",
              error.what());
  }
}

// What a stored error of a listener is in Python: None, or the exception.
nb::object as_exception(const std::exception_ptr& stored) {
  if (stored == nullptr) return nb::none();
  try {
    std::rethrow_exception(stored);
  } catch (const PythonError& error) {
    return nb::borrow(error.value());
  } catch (const std::exception& error) {
    return nb::steal(checked(PyObject_CallFunction(PyExc_RuntimeError, "s", error.what())));
  }
}

nb::object give(Object object) {
  return nb::steal(object.release());
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 1e9) * 1e3));
}

// --- event loops ---

class Loop {
 public:
  Loop(const std::string& name, int threads, bool log_errors)
      : loop_(std::make_shared<EventLoop>(
            name, EventLoopOptions{.threads = threads,
                                   .on_error = log_errors ? OnError::kLog : OnError::kRaise})) {}
  ~Loop() {
    // The loop's threads may need the interpreter's lock to end.
    const Unlock unlock;
    loop_.reset();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::uint64_t on(nb::handle event, nb::handle fn, bool once) {
    auto listener = std::make_unique<PythonListener>(fn.ptr());
    return static_cast<std::uint64_t>(
        loop_->add(event_name(event.ptr()), std::move(listener), {}, once));
  }
  void off(nb::handle pattern) { loop_->off(event_name(pattern.ptr())); }
  void off_function(nb::handle pattern, nb::handle fn) {
    FrontEnd::off(*loop_, event_name(pattern.ptr()), fn.ptr());
  }
  void emit(nb::handle event, nb::handle args, nb::handle kwargs) {
    drop_pending();
    PythonOutgoing outgoing(event_name(event.ptr()), args.ptr(), kwargs.ptr());
    loop_->emit_erased(event_name(event.ptr()), outgoing.emission());
  }
  nb::object wait_for(nb::handle event, double timeout, bool ignore_timeout) {
    return give(python::wait_for(*loop_, event_name(event.ptr()), timeout, false, ignore_timeout));
  }
  bool listened(nb::handle event) const { return loop_->listened(event_name(event.ptr())); }
  void stop() {
    const Unlock unlock;
    loop_->stop();
  }
  nb::object error() const { return as_exception(loop_->error()); }

 private:
  std::shared_ptr<EventLoop> loop_;
};

// --- tasks ---

struct TargetArguments {
  int kind = 0;  // Target::Kind
  int node = -1;
  std::string pattern;
  bool one_of = false;
};

Target target_of(const TargetArguments& to) {
  return {static_cast<Target::Kind>(to.kind), to.node, to.pattern, to.one_of};
}

// None: the emit does not choose, and the runner's send_policy holds.
std::optional<Policy> policy_of(std::optional<int> number) {
  if (!number) return std::nullopt;
  return static_cast<Policy>(*number);
}

class TaskEvents {
 public:
  // `shared`: the task of the process, which C++ sees too.
  explicit TaskEvents(bool shared) {
    if (!shared) own_ = std::make_unique<Task>();
  }
  ~TaskEvents() {
    if (own_ == nullptr) return;
    const Unlock unlock;
    own_.reset();
  }
  TaskEvents(const TaskEvents&) = delete;
  TaskEvents& operator=(const TaskEvents&) = delete;

  void start(const std::set<std::string>& labels, bool async_mode, int n_async_workers,
             double stop_timeout, bool log_errors) {
    StartOptions options;
    options.labels = labels;
    options.async_mode = async_mode;
    options.n_async_workers = n_async_workers;
    options.stop_timeout = milliseconds(stop_timeout);
    options.on_error = log_errors ? OnError::kLog : OnError::kRaise;
    const Unlock unlock;
    FrontEnd::start(task(), std::move(options));
  }
  void stop(bool failed) {
    const Unlock unlock;
    FrontEnd::stop(task(), failed);
  }
  void fail() {
    const Unlock unlock;
    FrontEnd::fail(task());
  }
  std::uint64_t enter_step(std::uint64_t step) { return FrontEnd::enter_step(task(), step); }
  void end_iteration() { FrontEnd::end_iteration(task()); }
  void raise_stored() { FrontEnd::raise_stored(task()); }
  void ready() {
    const Unlock unlock;
    FrontEnd::ready(task());
  }

  std::uint64_t on(nb::handle event, nb::handle fn, bool once) {
    const std::string_view name = event_name(event.ptr());
    auto listener = std::make_unique<PythonListener>(fn.ptr());
    const Unlock unlock;
    return static_cast<std::uint64_t>(FrontEnd::listen(task(), name, std::move(listener), once));
  }
  void off(nb::handle pattern) {
    const std::string_view name = event_name(pattern.ptr());
    const Unlock unlock;
    task().off(name);
  }
  void off_function(nb::handle pattern, nb::handle fn) {
    const std::string_view name = event_name(pattern.ptr());
    const void* const function = fn.ptr();
    const Unlock unlock;
    FrontEnd::off(task(), name, function);
  }
  void emit(nb::handle event, nb::handle args, nb::handle kwargs, bool only_local,
            bool only_remote) {
    emit_with(event, args, kwargs, {.only_local = only_local, .only_remote = only_remote});
  }
  void emit_to(nb::handle event, nb::handle args, nb::handle kwargs, bool only_local,
               bool only_remote, int kind, int node, const std::string& pattern, bool one_of,
               std::optional<int> policy) {
    emit_with(event, args, kwargs,
              {.only_local = only_local,
               .only_remote = only_remote,
               .to = target_of({kind, node, pattern, one_of}),
               .policy = policy_of(policy)});
  }
  nb::object wait_for(nb::handle event, double timeout, bool wake_on_finish, bool ignore_timeout) {
    return give(
        python::wait_for(task(), event_name(event.ptr()), timeout, wake_on_finish, ignore_timeout));
  }
  std::unique_ptr<Expectation> expect(nb::handle event) {
    return std::make_unique<Expectation>(task(), event_name(event.ptr()));
  }
  bool listened(nb::handle event) { return task().listened(event_name(event.ptr())); }
  nb::object error() { return as_exception(task().stored_error()); }

  bool running() { return task().running(); }
  bool finish() { return task().finish(); }
  void set_finish(bool finish) { task().set_finish(finish); }
  std::set<std::string> labels() { return task().labels(); }
  bool match_labels(const std::vector<std::string>& patterns) {
    return task().match_labels(patterns);
  }
  std::set<std::string> roles() { return task().roles(); }
  void add_role(const std::string& role) {
    const Unlock unlock;
    task().add_role(role);
  }
  bool has_role(const std::string& role) { return task().has_role(role); }

 private:
  Task& task() noexcept { return own_ != nullptr ? *own_ : divisi::task; }
  void emit_with(nb::handle event, nb::handle args, nb::handle kwargs, const EmitOptions& options) {
    drop_pending();
    const std::string_view name = event_name(event.ptr());
    PythonOutgoing outgoing(name, args.ptr(), kwargs.ptr());
    FrontEnd::emit(task(), name, options, outgoing);
  }

  std::unique_ptr<Task> own_;
};

// --- the router ---

Parallel& router() {
  return Parallel::instance();
}

void router_emit(nb::handle event, nb::handle args, nb::handle kwargs, int kind, int node,
                 const std::string& pattern, bool one_of, std::optional<int> policy) {
  drop_pending();
  if (!router().is_active()) return;
  const std::string_view name = event_name(event.ptr());
  PythonOutgoing outgoing(name, args.ptr(), kwargs.ptr());
  const PayloadView& payload = outgoing.pack();
  struct Sent {
    PythonOutgoing& outgoing;
    ~Sent() { outgoing.sent(); }
  } const sent{outgoing};
  router().send(name, payload, {target_of({kind, node, pattern, one_of}), policy_of(policy)});
}

std::uint64_t router_on(nb::handle event, nb::handle fn, bool once) {
  const std::string_view name = event_name(event.ptr());
  auto listener = std::make_unique<PythonListener>(fn.ptr());
  const Unlock unlock;
  return static_cast<std::uint64_t>(FrontEnd::listen(router(), name, std::move(listener), once));
}

nb::object router_call(int node_id, const std::string& name, double timeout, nb::tuple args) {
  Value answer;
  {
    const std::uint64_t id = FrontEnd::begin_call();
    const Object all = Object::steal(
        checked(PySequence_Concat(nb::make_tuple(router().node_id(), id).ptr(), args.ptr())));
    PackScratch scratch;
    const PayloadView& request =
        pack(scratch, "call." + name, all.get(), nullptr, &FrontEnd::accepts_pickle);
    const Unlock unlock;
    answer = FrontEnd::finish_call(id, node_id, name, request, milliseconds(timeout));
  }
  return nb::steal(from_value(answer));
}

void router_answer(int node_id, std::uint64_t call, bool ok, nb::handle value) {
  const Value answer = to_value(value.ptr());
  const Unlock unlock;
  FrontEnd::answer(node_id, call, ok, answer);
}

void progress(std::optional<double> env_steps_per_second, std::optional<double> episode_return,
              std::optional<double> eta_seconds, std::map<std::string, double> extra,
              bool whole_job) {
  const Unlock unlock;
  report_progress({env_steps_per_second, episode_return, eta_seconds, std::move(extra), whole_job});
}

nb::list router_peers() {
  nb::list all;
  for (const PeerInfo& peer : router().peers()) {
    nb::dict one;
    one["node_id"] = peer.node_id;
    one["labels"] = peer.labels;
    one["roles"] = peer.roles;
    one["address"] = peer.address;
    one["connected"] = peer.connected;
    one["lost"] = peer.lost;
    one["ready"] = peer.ready;
    all.append(one);
  }
  return all;
}

nb::dict router_stats() {
  const RouterStats stats = router().stats();
  nb::list peers;
  for (const PeerCounters& peer : stats.peers) {
    nb::dict one;
    one["node_id"] = peer.node_id;
    one["sent"] = peer.sent;
    one["received"] = peer.received;
    one["resent"] = peer.resent;
    one["dropped"] = peer.dropped;
    one["undelivered"] = peer.undelivered;
    one["gaps"] = peer.gaps;
    one["reconnects"] = peer.reconnects;
    one["queued_bytes"] = peer.queued_bytes;
    one["unacknowledged"] = peer.unacknowledged;
    one["refused"] = peer.refused;
    one["oldest_seconds"] = std::chrono::duration<double>(peer.oldest).count();
    peers.append(one);
  }
  nb::list topics;
  for (const TopicCounters& topic : stats.topics) {
    nb::dict one;
    one["topic"] = topic.topic;
    one["sent"] = topic.sent;
    one["received"] = topic.received;
    one["dropped"] = topic.dropped;
    topics.append(one);
  }
  nb::dict all;
  all["peers"] = peers;
  all["topics"] = topics;
  all["unlistened"] = stats.unlistened;
  all["held"] = stats.held;
  all["undelivered"] = stats.undelivered;
  all["gaps"] = stats.gaps;
  return all;
}

// --- workers ---

// A child that main has forked, and that left main, is not the worker. It ends as a program would
// that ends there: the exception that is set, if any, says how.
[[noreturn]] void leave_fork() {
  int code = 0;
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_SystemExit) != 0) {
    const PythonError error;
    const Object value = Object::steal(PyObject_GetAttrString(error.value(), "code"));
    if (value && PyLong_Check(value.get())) {
      code = static_cast<int>(PyLong_AsLong(value.get()));
    } else if (value && value.get() != Py_None) {
      PySys_FormatStderr("%S\n", value.get());
      code = 1;
    }
  } else if (PyErr_Occurred() != nullptr) {
    PyErr_Print();
    code = 1;
  }
  for (const char* const stream : {"stdout", "stderr"}) {
    PyObject* const file = PySys_GetObject(stream);
    if (file == nullptr || file == Py_None) continue;
    Object::steal(PyObject_CallMethod(file, "flush", nullptr));
    PyErr_Clear();
  }
  std::fflush(nullptr);
  ::_exit(code);
}

// Calls a Python function as a worker's main: its exit code, or MainFailed. `failure` keeps what it
// raised, for a launcher in the same process.
int call_main(nb::handle main, std::optional<PythonError>* failure) {
  const Lock lock;
  const pid_t worker = ::getpid();
  try {
    Py_DECREF(checked(PyObject_CallNoArgs(main.ptr())));
    if (::getpid() != worker) leave_fork();
    return 0;
  } catch (const PythonError& error) {
    if (::getpid() != worker) {
      error.restore();
      leave_fork();
    }
    if (failure != nullptr) *failure = error;
    if (error.is(PyExc_SystemExit)) {
      const Object code = Object::steal(PyObject_GetAttrString(error.value(), "code"));
      if (code.get() == Py_None) return 0;
      if (code && PyLong_Check(code.get())) return static_cast<int>(PyLong_AsLong(code.get()));
      return 1;
    }
    if (error.is(PyExc_KeyboardInterrupt)) return 128 + SIGINT;
    if (failure == nullptr || !error.is_ordinary()) {
      error.restore();
      PyErr_Print();  // the user's own traceback, in this worker's output
    }
    throw detail::MainFailed(error.what());
  }
}

template <class T>
void take(const nb::dict& from, const char* key, T& into) {
  if (from.contains(key)) into = nb::cast<T>(from[key]);
}

void take_seconds(const nb::dict& from, const char* key, std::chrono::milliseconds& into) {
  if (from.contains(key)) into = milliseconds(nb::cast<double>(from[key]));
}

ParallelOptions parallel_options(const nb::dict& from) {
  ParallelOptions options;
  take(from, "n_parallel_workers", options.n_parallel_workers);
  take(from, "mq_type", options.mq_type);
  take(from, "attach_to", options.attach_to);
  take(from, "protocol", options.protocol);
  take(from, "address", options.address);
  take(from, "ports", options.ports);
  take(from, "topology", options.topology);
  take(from, "labels", options.labels);
  take(from, "node_ids", options.node_ids);
  take(from, "auto_recover", options.auto_recover);
  take(from, "max_retries", options.max_retries);
  take_seconds(from, "startup_interval", options.startup_interval);
  take(from, "job_id", options.job_id);
  if (from.contains("secret")) {
    const nb::bytes secret = nb::cast<nb::bytes>(from["secret"]);
    options.secret.assign(secret.c_str(), secret.size());
  }
  take(from, "allow_pickle", options.allow_pickle);
  take_seconds(from, "join_timeout", options.join_timeout);
  take_seconds(from, "send_timeout", options.send_timeout);
  take(from, "queue_bytes", options.queue_bytes);
  take(from, "memory_bytes", options.memory_bytes);
  take(from, "max_message_bytes", options.max_message_bytes);
  if (from.contains("send_policy")) {
    options.send_policy = static_cast<Policy>(nb::cast<int>(from["send_policy"]));
  }
  take(from, "codec", options.codec);
  take(from, "worker_lost", options.worker_lost);
  take(from, "max_restarts", options.max_restarts);
  take(from, "hub_lost", options.hub_lost);
  take(from, "relay", options.relay);
  take_seconds(from, "grace", options.grace);
  take(from, "log_dir", options.log_dir);
  take(from, "log_level", options.log_level);
  take(from, "trace", options.trace);
  return options;
}

void run(const nb::dict& options, std::vector<std::string> command, nb::bytes entry,
         nb::handle main) {
  std::optional<PythonError> failure;
  detail::ForeignMain foreign;
  foreign.command = std::move(command);
  foreign.entry.assign(entry.c_str(), entry.size());
  foreign.call = [&] { return call_main(main, &failure); };
  const ParallelOptions parsed = parallel_options(options);
  try {
    const Unlock unlock;
    FrontEnd::run(parsed, foreign);
  } catch (const detail::MainFailed&) {
    if (failure) throw PythonError(*failure);
    throw;
  } catch (const WorkerError& error) {
    // main ran here and was interrupted or left by sys.exit: that is what the caller sees, too.
    if (failure && !failure->is_ordinary()) throw PythonError(*failure);
    throw;
  }
}

int run_spawned(nb::handle resolve) {
  const Unlock unlock;
  return FrontEnd::run_spawned([&](const detail::ForeignEntry& entry) -> std::function<int()> {
    const Lock lock;
    try {
      nb::list path;
      for (const std::string& folder : entry.search_path) path.append(folder);
      PyObject* const main = checked(PyObject_CallFunction(
          resolve.ptr(), "y#ssO", entry.entry.data(), static_cast<Py_ssize_t>(entry.entry.size()),
          entry.module.c_str(), entry.function.c_str(), path.ptr()));
      // The worker's process ends with its main: nobody takes the reference back.
      return [main] { return call_main(main, nullptr); };
    } catch (const PythonError& error) {
      // Its own message only: _worker.py has made it one line for the launcher.
      const Object text = Object::steal(PyObject_Str(error.value()));
      const char* const utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
      throw UsageError(utf8 != nullptr ? utf8 : error.what());
    }
  });
}

// --- a node by itself: what a message queue of somebody else's framework needs ---

class Inbox final {
 public:
  void put(std::string topic, std::string bytes) {
    {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(std::move(topic), std::move(bytes));
    }
    changed_.notify_one();
  }
  std::optional<std::pair<std::string, std::string>> take(double timeout) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return !messages_.empty() || closed_; };
    if (timeout < 0) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(timeout, 1e9)), ready);
    }
    if (messages_.empty()) return std::nullopt;
    auto message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    messages_.clear();
    closed_ = false;
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, std::string>> messages_;  // guarded by mutex_
  bool closed_ = true;                                        // guarded by mutex_
};

Inbox& inbox() {
  static auto* const inbox = new Inbox;
  return *inbox;
}

nb::tuple read_secret_file(const std::string& path, const std::string& option) {
  const detail::SecretFile secret = FrontEnd::read_secret_file(path, option);
  return nb::make_tuple(nb::bytes(secret.value.data(), secret.value.size()),
                        nb::str(secret.warning.c_str()));
}

void node_open(std::string listen, std::vector<std::string> attach_to, int node_id,
               std::set<std::string> labels, std::string job_id, nb::bytes secret,
               bool allow_pickle, double join_timeout) {
  detail::NodeSpec spec;
  spec.listen = std::move(listen);
  spec.attach_to = std::move(attach_to);
  spec.node_id = node_id;
  spec.labels = std::move(labels);
  spec.job_id = std::move(job_id);
  spec.secret.assign(secret.c_str(), secret.size());
  spec.allow_pickle = allow_pickle;
  spec.join_timeout = milliseconds(join_timeout);
  const Unlock unlock;
  FrontEnd::open_node(spec);
  inbox().open();
}

void node_close() {
  const Unlock unlock;
  FrontEnd::close_node();
  inbox().close();
}

void node_publish(const std::string& topic, nb::bytes data) {
  const Object args = Object::steal(checked(PyTuple_Pack(1, data.ptr())));
  router_emit(nb::str(topic.c_str()), nb::handle(args.get()), nb::none(), 0, -1, "", false,
              std::nullopt);
}

void node_subscribe(const std::string& topic) {
  const Unlock unlock;
  auto listener = divisi::detail::make_listener([topic](std::span<const std::byte> bytes) {
    inbox().put(topic, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  });
  FrontEnd::listen(router(), topic, std::move(listener), false);
}

void node_unsubscribe(const std::string& topic) {
  const Unlock unlock;
  router().off(topic);
}

nb::object node_recv(double timeout) {
  std::optional<std::pair<std::string, std::string>> message;
  {
    const Unlock unlock;
    message = inbox().take(timeout);
  }
  if (!message) return nb::none();
  return nb::make_tuple(message->first, nb::bytes(message->second.data(), message->second.size()));
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // tasks and loops of the user may well outlive the interpreter
  nb::register_exception_translator(translate);
  install_hooks();
  add_buffer_type(m.ptr());
  m.attr("version") = DIVISI_VERSION;

  // Handles may be None: whatever it is, the message is ours.
  const nb::arg any = nb::arg().none();
  nb::class_<Loop>(m, "Loop")
      .def(nb::init<const std::string&, int, bool>())
      .def("on", &Loop::on, any, any, nb::arg())
      .def("off", &Loop::off, any)
      .def("off_function", &Loop::off_function, any, any)
      .def("emit", &Loop::emit, any, any, any)
      .def("wait_for", &Loop::wait_for, any, nb::arg(), nb::arg())
      .def("listened", &Loop::listened, any)
      .def("stop", &Loop::stop)
      .def("error", &Loop::error);

  nb::class_<Expectation>(m, "Expectation")
      .def("wait",
           [](Expectation& self, double timeout, bool wake_on_finish, bool ignore_timeout) {
             return give(self.wait(timeout, wake_on_finish, ignore_timeout));
           })
      .def("close", &Expectation::close);

  nb::class_<TaskEvents>(m, "TaskEvents")
      .def(nb::init<bool>())
      .def("start", &TaskEvents::start)
      .def("stop", &TaskEvents::stop)
      .def("fail", &TaskEvents::fail)
      .def("enter_step", &TaskEvents::enter_step)
      .def("end_iteration", &TaskEvents::end_iteration)
      .def("raise_stored", &TaskEvents::raise_stored)
      .def("ready", &TaskEvents::ready)
      .def("on", &TaskEvents::on, any, any, nb::arg())
      .def("off", &TaskEvents::off, any)
      .def("off_function", &TaskEvents::off_function, any, any)
      .def("emit", &TaskEvents::emit, any, any, any, nb::arg(), nb::arg())
      .def("emit_to", &TaskEvents::emit_to, any, any, any, nb::arg(), nb::arg(), nb::arg(),
           nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("wait_for", &TaskEvents::wait_for, any, nb::arg(), nb::arg(), nb::arg())
      .def("expect", &TaskEvents::expect, any)
      .def("listened", &TaskEvents::listened, any)
      .def("error", &TaskEvents::error)
      .def("running", &TaskEvents::running)
      .def("finish", &TaskEvents::finish)
      .def("set_finish", &TaskEvents::set_finish)
      .def("labels", &TaskEvents::labels)
      .def("match_labels", &TaskEvents::match_labels)
      .def("roles", &TaskEvents::roles)
      .def("add_role", &TaskEvents::add_role)
      .def("has_role", &TaskEvents::has_role);

  m.def("router_is_active", [] { return router().is_active(); });
  m.def("router_node_id", [] { return router().node_id(); });
  m.def("router_local_id", [] { return router().local_id(); });
  m.def("router_n_parallel_workers", [] { return router().n_parallel_workers(); });
  m.def("router_labels", [] { return router().labels(); });
  m.def("router_mq_type", [] { return router().mq_type(); });
  m.def("router_address", [] { return router().address(); });
  m.def("router_auto_recover", [] { return router().auto_recover(); });
  m.def("router_max_retries", [] { return router().max_retries(); });
  m.def("router_retries", [] { return router().retries(); });
  m.def("router_attach_to_len", [] { return router().get_attach_to_len(); });
  m.def("router_on", &router_on, any, any, nb::arg());
  m.def(
      "router_off",
      [](nb::handle pattern) {
        const std::string_view name = event_name(pattern.ptr());
        const Unlock unlock;
        router().off(name);
      },
      any);
  m.def("router_emit", &router_emit, any, any, any, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg().none());
  m.def("router_call", &router_call);
  m.def("router_answer", &router_answer);
  m.def("router_peers", &router_peers);
  m.def("router_stats", &router_stats);
  m.def("router_wait_for_peers", [](std::size_t count, double timeout) {
    const Unlock unlock;
    return router().wait_for_peers(count, milliseconds(timeout));
  });
  m.def("router_ready", [] {
    const Unlock unlock;
    router().ready();
  });
  m.def("router_flush", [](double timeout) {
    const Unlock unlock;
    return router().flush(milliseconds(timeout));
  });
  m.def("router_interrupted", [] { return router().interrupted(); });
  m.def("router_barrier", [](double timeout) {
    const Unlock unlock;
    router().barrier(milliseconds(timeout));
  });
  // For the test that C++ and Python see one object.
  m.def("router_identity", [] { return reinterpret_cast<std::uintptr_t>(&router()); });

  m.def("report_progress", &progress, nb::arg().none(), nb::arg().none(), nb::arg().none(),
        nb::arg(), nb::arg());

  m.def("run", &run);
  m.def("is_spawned", &FrontEnd::is_spawned);
  m.def("run_spawned", &run_spawned);

  m.def("frozen_bytes", [](nb::handle object) { return give(frozen_bytes(object.ptr())); });
  m.def("read_secret_file", &read_secret_file);
  m.def("node_open", &node_open, nb::arg("listen"), nb::arg("attach_to"), nb::arg("node_id"),
        nb::arg("labels") = std::set<std::string>(), nb::arg("job_id") = "",
        nb::arg("secret") = nb::bytes(""), nb::arg("allow_pickle") = false,
        nb::arg("join_timeout") = 60.0);
  m.def("node_close", &node_close);
  m.def("node_publish", &node_publish);
  m.def("node_subscribe", &node_subscribe);
  m.def("node_unsubscribe", &node_unsubscribe);
  m.def("node_recv", &node_recv, nb::arg("timeout") = -1.0);
  add_serial(m);
  add_tune(m);
  add_study(m);
  add_trials(m);
  add_prune(m);
}

}  // namespace divisi::python
