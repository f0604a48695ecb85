// The command line of ditask as a value. Reading it touches nothing but its arguments.
#pragma once

#include "base/status.h"
#include "launch/plan.h"
#include "launch/text.h"
#include "runtime/runner.h"
#include "runtime/worker_config.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace divisi::launch {

struct DitaskOptions {
  enum class Action { kRun, kDryRun, kPrint };
  Action action = Action::kRun;
  std::string text;  // kPrint: what --help or --version say

  LaunchRequest request;  // platform_spec still as typed: text or a path
  std::string package = ".";
  std::optional<std::string> main;
  std::vector<std::string> command;  // after "--"; empty: a package

  std::optional<std::string> secret_file;  // --secret-file, else DIVISI_SECRET_FILE
  bool allow_pickle = false;
  bool auto_recover = false;
  int max_retries = runtime::kUnlimitedRetries;
  runtime::WorkerLost worker_lost = runtime::WorkerLost::kFail;
  std::chrono::milliseconds join_timeout{60'000};
  std::chrono::milliseconds send_timeout{30'000};
  std::chrono::milliseconds startup_interval{0};
  std::string codec = "native";
  std::string log_level = "info";
  std::string log_dir;
  bool log_json = false;
};

// `arguments` without the program's name. kInvalid with one line that names the flag; a flag that
// does not exist comes with the one that was probably meant.
Result<DitaskOptions> parse_command_line(std::vector<std::string> arguments,
                                         const Environment& environment);

}  // namespace divisi::launch
