// Container: one container of a pod as a process group of this machine, its output kept in a file.
//
// bubblewrap gives it a process namespace of its own: whatever it starts ends with it, and all of
// it ends when this program does, also by SIGKILL. While the sandbox is made that needs a guard.
// Each has a thread, which reads its output.
#pragma once

#include "base/status.h"
#include "io/process.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::local {

struct ContainerOptions {
  std::vector<std::string> command{};  // in the sandbox
  std::vector<std::string> sandbox{};  // arguments of bwrap, handed over by a descriptor
  std::string log{};                   // path; appended to
  // divisi-trial, which ends what is left when this program was killed; empty: none. Then a sandbox
  // that was not complete at that moment stays.
  std::string guard{};
  // From the container's thread, each line without its end.
  std::function<void(std::string_view line)> on_line{};
  // From the container's thread, once, after the last line.
  std::function<void(io::ExitStatus)> on_end{};
};

class Container {
 public:
  // The callbacks run until the destructor returns, which kills the process and joins the thread.
  static Result<std::unique_ptr<Container>> start(ContainerOptions options);
  virtual ~Container() = default;

  // SIGTERM to the command itself, as a kubelet does it.
  virtual void stop() = 0;
  // SIGKILL to all of its processes.
  virtual void kill() = 0;
};

// A line of a log file: "2026-11-17T12:00:00.000000Z text".
std::string log_line(std::string_view text, std::chrono::system_clock::time_point when);

}  // namespace divisi::local
