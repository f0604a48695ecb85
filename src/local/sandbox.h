// bubblewrap_arguments(): how bwrap has to be called so that a process sees this machine's files
// read-only, the volumes of its pod where the pod wants them, and a home and /tmp of its own.
//
//   / (tmpfs)  <- /usr /etc /home ... read-only;  /tmp, home <- the pod's folder;  volumes last
//
// A mount point that this machine does not have is made without touching the machine: the nearest
// folder that exists becomes a tmpfs with its entries bound into it.
#pragma once

#include "base/status.h"

#include <string>
#include <utility>
#include <vector>

namespace divisi::local {

struct Bind {
  std::string from{};  // on this machine
  std::string to{};    // in the sandbox
  bool read_only = false;
};

struct SandboxOptions {
  std::string hostname{};
  std::vector<Bind> binds{};  // in order
  std::string folder{};       // working directory, in the sandbox
  std::vector<std::pair<std::string, std::string>> environment{};
};

// Without the program and without the command. Looks at the folders of this machine.
Result<std::vector<std::string>> bubblewrap_arguments(const SandboxOptions& options);

// The path of bwrap, tried once: kUnavailable with what to install or to allow.
Result<std::string> find_bubblewrap();

}  // namespace divisi::local
