// What a launcher and its workers exit with (spec 6.7), in one place.
#pragma once

namespace divisi::runtime {

enum ExitCode : int {
  kExitOk = 0,
  kExitMainFailed = 1,     // main threw or returned something other than 0
  kExitUsage = 2,          // the command line, the environment, the package, the entry
  kExitNoJoin = 3,         // could not bind, was refused, or peers did not come in time
  kExitInterrupted = 130,  // SIGINT
  kExitTerminated = 143,   // SIGTERM
};

// Death by a signal, as a shell reports it.
constexpr int exit_code_of_signal(int signal) {
  return 128 + signal;
}

}  // namespace divisi::runtime
