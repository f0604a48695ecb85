// InputPump: reads a descriptor piece by piece, each when it is asked for.
//
//   InputPump pump(STDIN_FILENO, [&](std::string piece) { loop.post(...); });
//   pump.next();
//
// Reading blocks, so it happens on a thread of its own; `on_piece` runs there. An empty piece is
// the end, or an error, after which next() does nothing.
#pragma once

#include "io/process.h"

#include <functional>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>

namespace divisi::apps {

class InputPump {
 public:
  InputPump(int descriptor, std::function<void(std::string piece)> on_piece);
  ~InputPump();
  InputPump(const InputPump&) = delete;
  InputPump& operator=(const InputPump&) = delete;

  void next() { wanted_.release(); }  // any thread; once for each piece
  // Ends a read that waits. No piece afterwards; not from inside `on_piece`.
  void stop();

 private:
  void run(int descriptor);
  // Nothing once the pump is stopped.
  std::optional<std::string> read_piece(int descriptor);

  const std::function<void(std::string)> on_piece_;
  io::PipePair stop_;  // its write end is closed: end
  std::counting_semaphore<> wanted_{0};
  std::thread thread_;
};

}  // namespace divisi::apps
