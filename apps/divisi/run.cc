// divisi run and the commands around it: what they do is in src/run.

#include "commands.h"
#include "manifest_supervisor.h"
#include "run/job_commands.h"
#include "run/local_supervisor.h"
#include "run/manifest_backend.h"
#include "run/resize_commands.h"
#include "run/run_command.h"
#include "run/slurm_worker.h"
#include "run/ssh_host.h"
#include "run/ssh_worker.h"

#include <CLI/CLI.hpp>

#include <array>
#include <string_view>

namespace divisi::apps {
namespace {

struct RunCommand {
  std::string_view name;
  int (*main)(std::vector<std::string> words);
  const char* description;
};

constexpr std::array kRunCommands{
    RunCommand{"run", run::run_main, "Start one job: here, on hosts, on Slurm or in a cluster"},
    RunCommand{"jobs", run::jobs_main, "All jobs that were started with divisi run"},
    RunCommand{"logs", run::logs_main, "The output of a job's workers, merged"},
    RunCommand{"describe", run::describe_main, "A job and its workers"},
    RunCommand{"scale", run::scale_main, "Give a DIJob more or fewer replicas"},
    RunCommand{"suspend", run::suspend_main, "End the pods of a DIJob, keep the job"},
    RunCommand{"resume", run::resume_main, "Bring the pods of a suspended DIJob back"},
    RunCommand{"delete", run::delete_main, "End jobs and remove what they left"},
    RunCommand{"restart", run::restart_main, "End a job and start it again with the code as it is"},
    RunCommand{"completion", run::completion_main, "Completion for bash, zsh or fish"},
    RunCommand{"version", run::version_main, "The version of this program"},
};

}  // namespace

void add_run_commands(CLI::App& app) {
  for (const RunCommand& command : kRunCommands) {
    app.add_subcommand(std::string(command.name), command.description);
  }
}

std::optional<int> run_commands(const std::string& name, std::vector<std::string> arguments) {
  if (name == run::kSupervisorCommand) return run::local_supervisor_main(arguments);
  if (name == run::kSlurmWorkerCommand) return run::slurm_worker_main(arguments);
  if (name == run::kSshHostCommand) return run::ssh_host_main(arguments);
  if (name == run::kSshWorkerCommand) return run::ssh_worker_main(arguments);
  if (name == run::kManifestSupervisorCommand) return manifest_supervisor_main(arguments);
  for (const RunCommand& command : kRunCommands) {
    // "launch" is the name that ditask's launcher was to have.
    if (name == command.name || (name == "launch" && command.name == "run")) {
      return command.main(std::move(arguments));
    }
  }
  return std::nullopt;
}

}  // namespace divisi::apps
