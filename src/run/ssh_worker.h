// `divisi ssh-worker PLAN RANK`: one worker of an ssh job as a process of this machine, which the
// supervisor starts in place of a ditask: it prints what the worker prints, ends as it ends, and
// hands SIGTERM (end it) and SIGQUIT (end it at once) on.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "run/job.h"

#include <chrono>
#include <string>
#include <vector>

namespace divisi::run {

inline constexpr const char* kSshWorkerCommand = "ssh-worker";
inline constexpr const char* kSshPlanFile = "ssh.json";

struct SshPlan {
  std::string job{};
  std::string secret_file{};         // of this machine
  std::vector<std::string> hosts{};  // as ssh takes them
  std::string ditask{};              // of the hosts
  std::string folder{};              // of the hosts; empty: their default
  std::string root{};                // of the package; empty: there is none
  std::string archive{};             // the package's only file is a zip of this name
  std::chrono::milliseconds grace{10'000};
  std::vector<RunWorker> workers{};
};
json::Value to_json(const SshPlan& plan);

int ssh_worker_main(const std::vector<std::string>& arguments);

}  // namespace divisi::run
