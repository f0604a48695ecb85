// SignalPipe: SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE (a reader that has gone) as a readable
// descriptor. Children are started with the default actions, as handlers do not survive exec.
//
// One in a process, made before its threads.
#pragma once

#include "io/process.h"

#include <optional>

namespace divisi::run {

class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();  // the default actions again
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  int fd() const noexcept { return pipe_.read.get(); }  // readable while next() has one
  std::optional<int> next() const;                      // does not block
  // Whether one has come since the pipe was made; for any thread that does something long.
  static bool came() noexcept;

 private:
  io::PipePair pipe_;
};

}  // namespace divisi::run
