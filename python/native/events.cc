#include "events.h"

#include "divisi/event.h"
#include "divisi/task.h"

#include <cerrno>
#include <cmath>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace divisi::python {

namespace {

const LocalArguments* python_arguments(const detail::LocalCall& call) {
  if (call.args.size() != 1 || call.args[0].ops != &detail::kArgOps<LocalArguments>) return nullptr;
  return static_cast<const LocalArguments*>(call.args[0].object);
}

std::chrono::nanoseconds duration_of(double seconds) {
  constexpr double kLongest = 1e9;  // some thirty years
  if (std::isnan(seconds) || seconds >= kLongest) return kForever;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::max(seconds, 0.0) * 1e9));
}

int wake_descriptor() {
  // One for each thread that ever waited; only the main thread does, in most programs.
  struct Descriptor {
    int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ~Descriptor() { ::close(fd); }
  };
  thread_local Descriptor descriptor;
  return descriptor.fd;
}

}  // namespace

// --- listeners ---

void PythonListener::call_with(PyObject* args, PyObject* kwargs) const {
  PyObject* const result = PyObject_Call(fn_.get(), args, kwargs);
  if (result == nullptr) throw PythonError();
  Py_DECREF(result);
}

void PythonListener::call(const detail::LocalCall& call) {
  if (!hold()) return;
  if (const LocalArguments* const arguments = python_arguments(call)) {
    call_with(arguments->call.args.get(), arguments->call.kwargs.get());
    return;
  }
  const Call converted = from_args(detail::local_args(call));
  call_with(converted.args.get(), converted.kwargs.get());
}

void PythonListener::call(const PayloadView& payload) {
  if (!hold()) return;
  const Call converted = unpack(payload);
  call_with(converted.args.get(), converted.kwargs.get());
}

// --- emits ---

PythonOutgoing::PythonOutgoing(std::string_view event, PyObject* args, PyObject* kwargs)
    : event_(event),
      args_(args),
      kwargs_(kwargs != nullptr && kwargs != Py_None && PyDict_GET_SIZE(kwargs) > 0 ? kwargs
                                                                                    : nullptr) {}

const PayloadView& PythonOutgoing::pack() {
  const PayloadView& view =
      python::pack(scratch_, event_, args_, kwargs_, &detail::FrontEnd::accepts_pickle);
  unlock_.emplace();
  return view;
}

detail::Emission& PythonOutgoing::emission() {
  arguments_.emplace(LocalArguments{{Object::share(args_), Object::share(kwargs_)}});
  return emission_.emplace(nullptr, std::tuple<LocalArguments&&>(std::move(*arguments_)));
}

// --- waits ---

void PythonCapture::take(const detail::LocalCall& call) {
  if (!hold()) return;
  if (const LocalArguments* const arguments = python_arguments(call)) {
    call_.args = Object::share(arguments->call.args.get());
    call_.kwargs = Object::share(arguments->call.kwargs.get());
  } else {
    call_ = from_args(detail::local_args(call));
  }
}

void PythonCapture::take(const PayloadView& payload) {
  if (hold()) call_ = unpack(payload);
}

bool SignalSleeper::is_needed() {
  return ::getpid() == ::gettid();
}

SignalSleeper::SignalSleeper() : fd_(wake_descriptor()) {
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&all, fault);
  }
  ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  if (PyErr_CheckSignals() != 0) {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw PythonError();
  }
  std::uint64_t stale = 0;
  static_cast<void>(!::read(fd_, &stale, sizeof stale));
}

SignalSleeper::~SignalSleeper() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalSleeper::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(fd_, &one, sizeof one));
}

detail::Sleeper::Slept SignalSleeper::sleep(std::chrono::steady_clock::time_point deadline) {
  using Clock = std::chrono::steady_clock;
  timespec left{};
  const bool forever = deadline == Clock::time_point::max();
  if (!forever) {
    const auto rest = std::max(deadline - Clock::now(), Clock::duration::zero());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(rest);
    left.tv_sec = seconds.count();
    left.tv_nsec = std::chrono::nanoseconds(rest - seconds).count();
  }
  pollfd watched{fd_, POLLIN, 0};
  const int ready = ::ppoll(&watched, 1, forever ? nullptr : &left, &before_);
  if (ready > 0) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(fd_, &count, sizeof count));
    return Slept::kWoken;
  }
  if (ready == 0) return Slept::kDeadline;
  // A handler of C ran; Python's own wait for the interpreter.
  const Lock lock;
  if (PyErr_CheckSignals() == 0) return Slept::kWoken;
  raised_.emplace();
  return Slept::kInterrupted;
}

namespace {

template <class Target>
Object wait_with(Target& target, const std::shared_ptr<PythonCapture>& capture,
                 std::string_view event, double timeout, bool wake_on_finish, bool ignore_timeout) {
  std::optional<SignalSleeper> sleeper;
  if (SignalSleeper::is_needed()) sleeper.emplace();
  detail::WaitCall call{event,   duration_of(timeout),          wake_on_finish,
                        capture, sleeper ? &*sleeper : nullptr, {}};
  // With the lock until the wait is registered: no thread of the program can emit before.
  std::optional<Unlock> unlock;
  call.registered = [&] { unlock.emplace(); };
  const detail::Waited ended = detail::FrontEnd::wait(target, call);
  unlock.reset();
  if (sleeper && sleeper->raised()) throw PythonError(*sleeper->raised());
  switch (ended) {
    case detail::Waited::kEvent: {
      Call& came = capture->call();
      if (!came.args) break;
      const Object kwargs =
          came.kwargs ? std::move(came.kwargs) : Object::steal(checked(PyDict_New()));
      return Object::steal(checked(PyTuple_Pack(2, came.args.get(), kwargs.get())));
    }
    case detail::Waited::kTimeout:
      if (!ignore_timeout) {
        throw TimeoutError("waited " + std::to_string(timeout) + " s for the event '" +
                           std::string(event) + "', which did not come");
      }
      break;
    default: break;
  }
  return Object::share(Py_None);
}

}  // namespace

template <class Target>
Object wait_for(Target& target, std::string_view event, double timeout, bool wake_on_finish,
                bool ignore_timeout) {
  return wait_with(target, std::make_shared<PythonCapture>(), event, timeout, wake_on_finish,
                   ignore_timeout);
}

Expectation::Expectation(Task& task, std::string_view event) : event_(event) {
  const Unlock unlock;
  expected_ = detail::FrontEnd::expect(task, event_, capture_);
}

Object Expectation::wait(double timeout, bool wake_on_finish, bool ignore_timeout) {
  if (expected_ == nullptr) {
    throw UsageError("the expected event '" + event_ +
                     "' is closed: wait() before close() or the end of the with block");
  }
  const auto expected = expected_;  // another thread may close it
  return wait_with(*expected, capture_, event_, timeout, wake_on_finish, ignore_timeout);
}

void Expectation::close() {
  if (expected_ == nullptr) return;
  auto ending = std::move(expected_);
  const Unlock unlock;
  ending.reset();
}

template Object wait_for(EventLoop&, std::string_view, double, bool, bool);
template Object wait_for(Task&, std::string_view, double, bool, bool);

std::string_view event_name(PyObject* name) {
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "an event's name is a str, not %.100s", Py_TYPE(name)->tp_name);
    throw PythonError();
  }
  Py_ssize_t size = 0;
  const char* const utf8 = PyUnicode_AsUTF8AndSize(name, &size);
  if (utf8 == nullptr) throw PythonError();
  return {utf8, static_cast<std::size_t>(size)};
}

}  // namespace divisi::python
