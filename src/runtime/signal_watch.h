// SignalWatch: turns signals into a readable descriptor for as long as it lives.
//
// Works inside a program of somebody else: a handler that was there is still called after the
// signal was noted, an ignored signal stays ignored, and the last watch puts everything back.
// Several may live at once; each sees every signal, on any thread. A handler that the program
// installs meanwhile has its signal for itself, until another watch is made, or come_first().
#pragma once

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <vector>

namespace divisi::runtime {

// What asks a launcher or a worker to end.
inline constexpr std::initializer_list<int> kEndSignals = {SIGINT, SIGTERM, SIGHUP};

struct CaughtSignal {
  int number = 0;
  std::chrono::steady_clock::time_point at;  // when its handler ran
};

// Whether `next` asks to end at once after `first` has asked to end. A SIGINT within half a second
// of the first does not: `timeout`, `make`, `uv run` and others deliver one Ctrl-C twice.
inline constexpr std::chrono::milliseconds kOneInterrupt{500};
bool is_impatient(const CaughtSignal& first, const CaughtSignal& next);

class SignalWatch {
 public:
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Puts all watches before a handler that the program has installed meanwhile, which is still
  // called. A signal that was set to its default or to be ignored is the program's decision.
  static void come_first();

  int fd() const noexcept;  // readable while next() has something
  // Neither blocks.
  std::optional<int> next() const;
  std::optional<CaughtSignal> next_caught() const;

 private:
  int slot_;
  std::vector<int> signals_;
};

}  // namespace divisi::runtime
