// The command lines of di-orchestrator, di-operator and di-server: those of every released
// reference, so that manifests which start it need no edit.
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "dijob/amounts.h"
#include "dijob/pod.h"
#include "io/address.h"
#include "io/reactor.h"
#include "kube/config.h"
#include "server/auth.h"
#include "server/first/operation.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace divisi::apps {

// Nothing: does not listen there.
using Listen = std::optional<io::Address>;

struct CommonFlags {
  kube::ConfigOptions config{};
  std::string space{};  // watched; empty: all
  dijob::ClusterNames names{};
  // First generation.
  std::string first_server_url = "di-server.di-system:8080";  // KUBERNETES_SERVER_URL of pods
  std::string aggregator_config_space = "di-system";
  std::string aggregator_config = "aggregator-config";
  Listen metrics{};
  log::Level log_level = log::Level::kInfo;
  bool log_json = false;
};

struct OperatorFlags {
  CommonFlags common{};
  io::Duration sync_period = std::chrono::minutes(1);
  Listen probe{};
  bool leader_elect = false;
  std::string lease_space{};  // empty: our own
  bool strict_admission = false;
  io::Duration force_delete_after = std::chrono::minutes(5);  // 0: never
  bool aggregator_at_start = false;                           // of every first-generation job
  dijob::Amounts default_resources{};  // of a replica that asks for nothing: for the allocator
};

struct ServerFlags {
  CommonFlags common{};
  io::Address api{};
  io::Address probe{};
  server::AuthOptions auth{};
  server::first::Options first{};
};

// Help is asked for: its text, to be printed.
struct HelpText {
  std::string text{};
};

using CommandLine = std::variant<OperatorFlags, ServerFlags, HelpText>;

// `arguments` are those after the program's name. `program` is how it was called: "/di-operator"
// needs no subcommand. kInvalid with one line for everything that is wrong.
Result<CommandLine> parse_command_line(std::string_view program, std::vector<std::string> arguments,
                                       const kube::EnvironmentLookup& environment);

// "1m30s", "250ms", "1.5h", "0": as Go writes durations. Not negative, at most a year.
Result<io::Duration> parse_duration(std::string_view text);

// ":8443" is every address of this machine, "127.0.0.1:8443" that one; "0" and "" are none.
Result<Listen> parse_listen(std::string_view text);

}  // namespace divisi::apps
