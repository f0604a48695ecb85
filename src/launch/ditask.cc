#include "launch/ditask.h"

#include "base/log.h"
#include "io/process.h"
#include "json/value.h"
#include "launch/dry_run.h"
#include "launch/options.h"
#include "launch/package.h"
#include "launch/plan.h"
#include "launch/platform_spec.h"
#include "launch/python_package.h"
#include "launch/secret.h"
#include "runtime/crash_report.h"
#include "runtime/entry.h"
#include "runtime/exit_code.h"
#include "runtime/finish_watcher.h"
#include "runtime/runner.h"
#include "runtime/signal_watch.h"
#include "runtime/worker.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

extern "C" char** environ;

namespace divisi::launch {
namespace {

Environment process_environment() {
  Environment environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

// One line, whatever the message holds.
int complain(const Status& status, int exit_code) {
  std::string line = status.message();
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "ditask: %s\n", log::printable(std::move(line)).c_str());
  return exit_code;
}

// Whoever asked for a text must not take a part of it for all of it.
int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return runtime::kExitOk;
  return complain(make_status(Code::kUnavailable, "writing to stdout: {}", errno_text(errno)),
                  runtime::kExitMainFailed);
}

// Everything that is known before a package is opened.
struct Launch {
  LaunchPlan plan;
  std::vector<runtime::WorkerConfig> workers;
  std::vector<std::string> warnings;
};

runtime::WorkerConfig common_config(const DitaskOptions& options, const LaunchPlan& plan) {
  runtime::WorkerConfig config;
  config.labels = plan.labels;
  config.job_id = plan.job_id;
  config.job_links = plan.job_links;
  config.listen_on_loopback = plan.protocol == runtime::Protocol::kTcp;
  config.allow_pickle = options.allow_pickle;
  config.join_timeout = options.join_timeout;
  config.send_timeout = options.send_timeout;
  config.codec = options.codec;
  config.auto_recover = options.auto_recover;
  config.max_retries = options.max_retries;
  config.ignore_lost = options.worker_lost == runtime::WorkerLost::kIgnore;
  config.log_level = options.log_level;
  config.log_json = options.log_json;
  return config;
}

Result<Launch> prepare(DitaskOptions& options, const Environment& environment) {
  if (options.request.platform_spec) {
    DIVISI_TRY(options.request.platform_spec, read_platform_spec(*options.request.platform_spec));
  }
  Launch launch;
  DIVISI_TRY(launch.plan, make_plan(options.request, environment));
  const LaunchPlan& plan = launch.plan;
  launch.warnings = plan.warnings;

  runtime::PlanOptions workers;
  workers.n_parallel_workers = plan.workers;
  workers.protocol = plan.protocol;
  workers.topology = plan.topology;
  workers.address = plan.address;
  workers.ports = plan.ports;
  workers.node_ids = plan.node_ids;
  workers.attach_to = plan.attach_to;
  workers.startup_interval = options.startup_interval;
  workers.common = common_config(options, plan);
  if (options.secret_file) {
    DIVISI_TRY(Secret secret, read_secret_file(*options.secret_file));
    workers.common.secret = std::move(secret.value);
    if (!secret.warning.empty()) launch.warnings.push_back(std::move(secret.warning));
  }
  DIVISI_TRY(runtime::Plan made, runtime::plan_workers(workers));
  launch.workers = std::move(made.workers);
  for (std::string& warning : made.warnings) launch.warnings.push_back(std::move(warning));
  // main waits for every node of the job that this one is linked with, whoever dials (spec 3.5).
  for (std::size_t i = 0; i < plan.job_peers.size(); ++i) {
    std::vector<int>& awaited = launch.workers[i].linked_nodes;
    awaited.insert(awaited.end(), plan.job_peers[i].begin(), plan.job_peers[i].end());
  }
  return launch;
}

// Once everything is known to be usable, so that a mistake is answered by its own line alone.
void warn(const Launch& launch) {
  for (const std::string& warning : launch.warnings) log::warning("{}", warning);
}

// A program after "--" finds its secret where we found it; the secret itself stays out of the
// environment.
void hand_on_secret_file(const DitaskOptions& options) {
  if (options.secret_file) ::setenv("DIVISI_SECRET_FILE", options.secret_file->c_str(), 1);
}

int run_processes(const DitaskOptions& options, const Launch& launch, bool is_python,
                  const runtime::SignalWatch& signals) {
  runtime::RunnerOptions runner;
  runner.signals = &signals;
  runner.worker_lost = options.worker_lost;
  runner.log_dir = options.log_dir;
  runner.end_with_reader = options.log_dir.empty();
  runner.command = is_python ? python_worker_command() : options.command;
  runner.command_is_worker = is_python;
  const runtime::RunResult result = runtime::run_workers(runner, launch.workers);
  if (result.ok()) return result.exit_code;
  return complain(result.status, result.exit_code);
}

// The worker that runs in this process, while its main does.
const runtime::WorkerConfig* running_here = nullptr;
pid_t running_in = 0;

struct RunsHere {
  explicit RunsHere(const runtime::WorkerConfig& config) {
    running_here = &config;
    running_in = ::getpid();
  }
  ~RunsHere() { running_here = nullptr; }
};

// Its main has called exit(), which unwinds nothing. The number is none of ditask's own codes.
// A child of main that calls it is not the worker.
void left_by_exit(int code, void*) {
  if (running_here == nullptr || ::getpid() != running_in) return;
  if (const std::string path = runtime::ipc_path(running_here->listen); !path.empty()) {
    ::unlink(path.c_str());
  }
  if (code == 0) return;
  std::fflush(nullptr);
  ::_exit(complain(
      make_status(Code::kInternal, "node {}: ended with exit code {}", running_here->node_id, code),
      runtime::kExitMainFailed));
}

int ended_by(int signal) {
  return complain(make_status(Code::kCancelled, "ended by {}", io::signal_name(signal)),
                  runtime::exit_code_of_signal(signal));
}

// Runs the constructors of the package, which may take as long as they like. There is nothing to
// put in order yet, so a signal ends ditask at once; not by its default action, which process 1 of
// a container does not have.
Result<runtime::Entry> load_here(const runtime::EntryRef& entry,
                                 const runtime::SignalWatch& signals) {
  const runtime::FinishWatcher watcher({
      .on_finish = [](int signal) { ::_exit(ended_by(signal)); },
      .signals = &signals,
  });
  return runtime::resolve_entry(entry);
}

// A single worker needs no process of its own: main runs here (spec 3.5).
int run_here(const runtime::WorkerConfig& config,
             std::unique_ptr<const runtime::SignalWatch> signals) {
  runtime::install_crash_report(config.node_id);
  log::set_identity(config.job_id, config.node_id);
  const auto entry = load_here(config.entry, *signals);
  // One that is first again, should the package have brought a handler.
  const runtime::SignalWatch worker_signals(runtime::kEndSignals);
  if (const auto signal = signals->next()) return ended_by(*signal);
  signals.reset();
  if (!entry) return complain(entry.error(), runtime::kExitUsage);
  ::on_exit(left_by_exit, nullptr);
  const RunsHere runs(config);
  const runtime::InlineOutcome ended =
      runtime::run_worker_inline(config, entry->call, &worker_signals);
  if (ended.signal != 0) return runtime::exit_code_of_signal(ended.signal);
  const runtime::WorkerOutcome& outcome = ended.outcome;
  if (outcome.kind == runtime::WorkerOutcome::Kind::kDone) return runtime::kExitOk;
  return complain(make_status(Code::kInternal, "node {}: {}", config.node_id, outcome.text),
                  outcome.exit_code);
}

int run_package(const DitaskOptions& options, Launch& launch) {
  // From here on there may be a directory to remove.
  auto signals = std::make_unique<const runtime::SignalWatch>(runtime::kEndSignals);
  const auto package = Package::open({.path = options.package, .main = options.main});
  if (!package) return complain(package.error(), runtime::kExitUsage);
  const Status probed = package->probe(signals->fd());
  if (const auto signal = signals->next()) return ended_by(*signal);
  if (!probed.ok()) return complain(probed, runtime::kExitUsage);
  for (runtime::WorkerConfig& worker : launch.workers) worker.entry = package->entry();
  warn(launch);
  // An unpacked archive has to be removed, a log file written and a dead worker replaced whatever
  // happens to main, so these keep the launcher out of the worker.
  const bool is_python = package->is_python();
  if (launch.workers.size() == 1 && !is_python && !package->is_archive() &&
      options.log_dir.empty() && options.worker_lost == runtime::WorkerLost::kFail) {
    return run_here(launch.workers.front(), std::move(signals));
  }
  return run_processes(options, launch, is_python, *signals);
}

int run(std::vector<std::string> arguments) {
  const Environment environment = process_environment();
  auto options = parse_command_line(std::move(arguments), environment);
  if (!options) return complain(options.error(), runtime::kExitUsage);
  if (options->action == DitaskOptions::Action::kPrint) {
    return print(options->text);
  }
  log::set_json(options->log_json);
  if (const auto level = log::parse_level(options->log_level)) log::set_level(*level);

  auto launch = prepare(*options, environment);
  if (!launch) return complain(launch.error(), runtime::kExitUsage);
  if (options->action == DitaskOptions::Action::kDryRun) {
    std::string main;
    if (options->command.empty()) {
      const auto name = choose_entry_name({.path = options->package, .main = options->main});
      if (!name) return complain(name.error(), runtime::kExitUsage);
      main = name->text();
    }
    warn(*launch);
    const json::Value text = describe(*options, main, launch->plan, launch->workers);
    return print(json::print(text, 2) + "\n");
  }
  if (options->command.empty()) return run_package(*options, *launch);
  hand_on_secret_file(*options);
  warn(*launch);
  return run_processes(*options, *launch, false, runtime::SignalWatch(runtime::kEndSignals));
}

// `ditask launch ...` is `divisi run ...`, which starts the ditasks of a whole job.
int run_launcher(char** words) {
  const std::string here = io::current_program();
  const std::string beside = here.substr(0, here.rfind('/') + 1) + "divisi";
  std::string program = "divisi";
  std::string command = "run";
  std::vector<char*> arguments{program.data(), command.data()};
  while (*words != nullptr) arguments.push_back(*words++);
  arguments.push_back(nullptr);
  ::execv(beside.c_str(), arguments.data());
  ::execvp(program.c_str(), arguments.data());
  return complain(make_status(Code::kUnavailable,
                              "ditask launch is divisi run, and there is no divisi beside ditask "
                              "or in PATH: {}",
                              errno_text(errno)),
                  runtime::kExitUsage);
}

}  // namespace

int ditask_main(int argc, char** argv) {
  io::open_standard_descriptors();
  runtime::enter_worker_if_spawned();
  if (argc > 1 && std::string_view(argv[1]) == "launch") return run_launcher(argv + 2);
  try {
    return run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const std::exception& error) {
    return complain(Status(Code::kInternal, error.what()), runtime::kExitMainFailed);
  }
}

}  // namespace divisi::launch
