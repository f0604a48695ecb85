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
};
std::array<Watched, NSIG> watched;
std::mutex table_mutex;

// The handler survives fork() in a child that does not exec; its signals are not ours.
std::atomic<pid_t> owner{0};

void note_signal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool ours = ::getpid() == owner;
  for (Slot& slot : slots) {
    if (!slot.in_use || !ours) continue;
    const auto byte = static_cast<unsigned char>(signal);
    // A full pipe means that thousands of signals wait to be read: one more changes nothing.
    [[maybe_unused]] const ssize_t written = ::write(slot.write_end, &byte, 1);
  }
  errno = saved_errno;
  const struct sigaction& previous = watched[static_cast<std::size_t>(signal)].previous;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    if (previous.sa_sigaction != nullptr) previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else if (!ours && previous.sa_handler == SIG_DFL) {
    ::sigaction(signal, &previous, nullptr);
    ::raise(signal);  // blocked until we return, then the default
  }
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == note_signal;
}

// False when the signal is ignored and stays so.
bool watch(int signal) {
  Watched& entry = watched[static_cast<std::size_t>(signal)];
  if (entry.users++ > 0) return true;
  struct sigaction action{};
  ::sigaction(signal, nullptr, &action);
  if ((action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN) {
    --entry.users;
    return false;
  }
  entry.previous = action;
  struct sigaction ours{};
  ours.sa_sigaction = note_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigfillset(&ours.sa_mask);
  ::sigaction(signal, &ours, nullptr);
  return true;
}

void unwatch(int signal) {
  Watched& entry = watched[static_cast<std::size_t>(signal)];
  if (--entry.users > 0) return;
  struct sigaction current{};
  ::sigaction(signal, nullptr, &current);
  if (is_ours(current)) ::sigaction(signal, &entry.previous, nullptr);
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

int SignalWatch::fd() const noexcept {
  return slots[static_cast<std::size_t>(slot_)].read_end;
}

std::optional<int> SignalWatch::next() const {
  unsigned char signal = 0;
  while (true) {
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): the pipe never blocks
    const ssize_t size = ::read(fd(), &signal, 1);
    if (size == 1) return signal;
    if (size < 0 && errno == EINTR) continue;
    return std::nullopt;
  }
}

}  // namespace divisi::runtime
