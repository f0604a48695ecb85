#include "runtime/signal_watch.h"

#include "base/status.h"
#include "divisi/error.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>

namespace divisi::runtime {

namespace {

constexpr int kSlots = 16;  // watches at once in a process; a runner and its caller need two

// Pipes are made once a slot and never closed, so a handler that is just running on another thread
// can never write to a descriptor that has become something else.
struct Slot {
  std::atomic<bool> in_use{false};  // read by the handler, pairs with the constructor
  std::atomic<int> write_end{-1};
  int read_end = -1;
};
std::array<Slot, kSlots> slots;

struct Watched {
  int users = 0;                // guarded by table_mutex
  struct sigaction previous{};  // written before our handler is installed
  bool covered = false;         // note_first was installed; guarded by table_mutex
  struct sigaction cover{};     // what it covers; written before
  std::atomic<const siginfo_t*> handling{nullptr};  // by note_first, on some thread
};
std::array<Watched, NSIG> watched;
std::mutex table_mutex;

// The handler survives fork() in a child that does not exec; its signals are not ours.
std::atomic<pid_t> owner{0};

using Handler = void (*)(int, siginfo_t*, void*);

bool calls(const struct sigaction& action, Handler handler) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handler;
}

struct sigaction current_action(int signal) {
  struct sigaction action{};
  ::sigaction(signal, nullptr, &action);
  return action;
}

void note(int signal) {
  const int saved_errno = errno;
  const CaughtSignal caught{signal, std::chrono::steady_clock::now()};
  for (Slot& slot : slots) {
    if (!slot.in_use || ::getpid() != owner) continue;
    // A full pipe means that thousands of signals wait to be read: one more changes nothing.
    [[maybe_unused]] const ssize_t written = ::write(slot.write_end, &caught, sizeof(caught));
  }
  errno = saved_errno;
}

void pass_on(const struct sigaction& previous, int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    if (previous.sa_sigaction != nullptr) previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else if (::getpid() != owner && previous.sa_handler == SIG_DFL) {
    ::sigaction(signal, &previous, nullptr);
    ::raise(signal);  // blocked until we return, then the default
  }
}

// Over a handler that the program has put over note_signal, which that one may call in turn: two
// functions, so that they do not call each other for ever.
void note_first(int signal, siginfo_t* info, void* context) {
  Watched& entry = watched[static_cast<std::size_t>(signal)];
  if (entry.handling.exchange(info) == info) return;  // what we cover was installed again over us
  note(signal);
  pass_on(entry.cover, signal, info, context);
  entry.handling = nullptr;
}

void note_signal(int signal, siginfo_t* info, void* context) {
  if (!calls(current_action(signal), note_first)) note(signal);
  pass_on(watched[static_cast<std::size_t>(signal)].previous, signal, info, context);
}

bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

void install(int signal, Handler handler) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

bool same_handler(const struct sigaction& one, const struct sigaction& other) {
  if (((one.sa_flags ^ other.sa_flags) & SA_SIGINFO) != 0) return false;
  return (one.sa_flags & SA_SIGINFO) != 0 ? one.sa_sigaction == other.sa_sigaction
                                          : one.sa_handler == other.sa_handler;
}

// The program may have installed a handler of its own since the first watch. One function only (an
// interpreter has one for all its signals): whether a second one calls note_first is not to be
// known.
void come_first(int signal) {
  Watched& entry = watched[static_cast<std::size_t>(signal)];
  const struct sigaction current = current_action(signal);
  if (calls(current, note_signal) || calls(current, note_first) || is_ignored(current)) return;
  if (entry.covered && !same_handler(current, entry.cover)) return;
  entry.cover = current;
  entry.covered = true;
  install(signal, note_first);
}

// False when the signal is ignored and stays so.
bool watch(int signal) {
  Watched& entry = watched[static_cast<std::size_t>(signal)];
  if (entry.users > 0) {
    come_first(signal);
  } else {
    const struct sigaction current = current_action(signal);
    if (is_ignored(current)) return false;
    entry.previous = current;
    install(signal, note_signal);
  }
  ++entry.users;
  return true;
}

void unwatch(int signal) {
  Watched& entry = watched[static_cast<std::size_t>(signal)];
  if (--entry.users > 0) return;
  const struct sigaction current = current_action(signal);
  if (calls(current, note_signal)) ::sigaction(signal, &entry.previous, nullptr);
  if (calls(current, note_first)) ::sigaction(signal, &entry.cover, nullptr);
  entry.covered = false;
}

int take_slot() {
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots[static_cast<std::size_t>(i)];
    if (slot.in_use) continue;
    if (slot.read_end < 0) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        throw Error(Code::kUnavailable, "opening a pipe for signals: " + errno_text(errno));
      }
      slot.read_end = ends[0];
      slot.write_end = ends[1];
    }
    slot.in_use = true;
    return i;
  }
  DIVISI_CHECK(false, "at most 16 signal watches live at once");
  return -1;
}

}  // namespace

SignalWatch::SignalWatch(std::initializer_list<int> signals) {
  const std::lock_guard lock(table_mutex);
  owner = ::getpid();
  // NOLINTNEXTLINE(cppcoreguidelines-prefer-member-initializer): under the lock
  slot_ = take_slot();
  for (const int signal : signals) {
    if (watch(signal)) signals_.push_back(signal);
  }
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(table_mutex);
  for (const int signal : signals_) unwatch(signal);
  while (next()) {
  }
  slots[static_cast<std::size_t>(slot_)].in_use = false;
}

void SignalWatch::come_first() {
  const std::lock_guard lock(table_mutex);
  if (::getpid() != owner) return;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (watched[static_cast<std::size_t>(signal)].users == 0) continue;
    if (!is_default(current_action(signal))) runtime::come_first(signal);
  }
}

int SignalWatch::fd() const noexcept {
  return slots[static_cast<std::size_t>(slot_)].read_end;
}

bool is_impatient(const CaughtSignal& first, const CaughtSignal& next) {
  return next.number == SIGINT && next.at - first.at > kOneInterrupt;
}

std::optional<int> SignalWatch::next() const {
  if (const auto caught = next_caught()) return caught->number;
  return std::nullopt;
}

std::optional<CaughtSignal> SignalWatch::next_caught() const {
  CaughtSignal caught;
  while (true) {
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): the pipe never blocks
    const ssize_t size = ::read(fd(), &caught, sizeof(caught));  // written in one piece each
    if (size == sizeof(caught)) return caught;
    if (size < 0 && errno == EINTR) continue;
    return std::nullopt;
  }
}

}  // namespace divisi::runtime
