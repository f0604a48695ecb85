#include "run/rendering.h"

#include "json/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

std::string absolute_package(const RunOptions& options) {
  if (!options.command.empty()) return {};
  std::error_code error;
  const fs::path path = fs::canonical(options.package, error);
  return error ? options.package : path.string();
}

std::string wait_for_all(std::string_view starts) {
  return fmt::format(
      "#!/bin/sh\n"
      "# Ends with the exit code of the first worker that failed.\n"
      "pids=\n{}"
      "code=0\n"
      "for pid in $pids; do\n"
      "  wait \"$pid\" || {{ failed=$?; [ $code -ne 0 ] || code=$failed; }}\n"
      "done\n"
      "exit $code\n",
      starts);
}

}  // namespace

std::string worker_line(const RunWorker& worker, const std::string& ditask) {
  std::string line;
  for (const auto& [name, value] : worker.environment) {
    line += fmt::format("{}={} ", name, shell_quote(value));
  }
  std::vector<std::string> words{ditask};
  words.insert(words.end(), worker.arguments.begin(), worker.arguments.end());
  return line + shell_line(words);
}

// Several workers on one machine: each on an address of its own in 127.0.0.0/8, so that all have
// the same port, as on hosts of their own.
Result<RunJob> plan_local(const RunOptions& options, const std::string& entry,
                          std::optional<std::vector<std::string>> devices) {
  constexpr int kLastPart = 254;
  Place place{.hosts = {},
              .package = absolute_package(options),
              .listen_on_host = true,
              .visible_devices = true,
              .devices = std::move(devices)};
  for (int rank = 0; rank < options.workers; ++rank) {
    place.hosts.push_back(fmt::format("127.0.{}.{}", rank / kLastPart, rank % kLastPart + 1));
  }
  return make_job(options, BackendKind::kLocal, entry, place);
}

Result<RunJob> plan_ssh(const RunOptions& options, const std::string& entry) {
  Place place{.hosts = {}, .package = absolute_package(options), .devices = std::nullopt};
  std::vector<std::string> devices;
  for (const std::string& host : options.hosts) {
    // user@host is how we get there, not how the others dial it.
    std::string name = host.substr(host.find('@') + 1);
    // Each host counts its own devices.
    const auto before = std::ranges::count(place.hosts, name);
    if (before > 0 && options.command.empty()) {
      return failure(Code::kInvalid,
                     "--hosts: {} is there twice, and its workers would want the same port; say "
                     "--parallel-workers for several processes a host",
                     name);
    }
    devices.push_back(std::to_string(before));
    place.hosts.push_back(std::move(name));
  }
  place.devices = std::move(devices);
  return make_job(options, BackendKind::kSsh, entry, place);
}

Result<RunJob> plan_slurm(const RunOptions& options, const std::string& entry) {
  Place place{.hosts = {}, .package = absolute_package(options), .devices = std::nullopt};
  for (int rank = 0; rank < options.workers; ++rank) {
    place.hosts.push_back(fmt::format("h_{}", rank));
  }
  return make_job(options, BackendKind::kSlurm, entry, place);
}

std::string local_script(const RunJob& job) {
  std::string starts;
  for (const RunWorker& worker : job.workers) {
    starts += worker_line(worker, "ditask") + " &\npids=\"$pids $!\"\n";
  }
  return wait_for_all(starts);
}

std::string ssh_script(const RunJob& job) {
  const std::string ditask =
      job.options.remote_ditask.empty() ? "ditask" : job.options.remote_ditask;
  std::string starts;
  for (const RunWorker& worker : job.workers) {
    const std::string& host = job.options.hosts[static_cast<std::size_t>(worker.rank)];
    starts += fmt::format("ssh {} {} &\npids=\"$pids $!\"\n", shell_quote(host),
                          shell_quote(worker_line(worker, ditask)));
  }
  return wait_for_all(starts);
}

std::string slurm_script(const RunJob& job, const SlurmFiles& files) {
  const RunOptions& options = job.options;
  const std::string ditask = options.remote_ditask.empty() ? "ditask" : options.remote_ditask;
  std::string text = fmt::format("#!/bin/sh\n#SBATCH --job-name={}\n#SBATCH --ntasks={}\n",
                                 job.name, options.workers);
  if (!options.cpu.empty()) text += fmt::format("#SBATCH --cpus-per-task={}\n", options.cpu);
  for (const std::string& argument : options.slurm_arguments) {
    text += fmt::format("#SBATCH {}\n", argument);
  }
  for (const auto& [name, value] : options.environment) {
    text += fmt::format("export {}={}\n", name, shell_quote(value));
  }
  if (!files.secret.empty()) {
    text += fmt::format("export DIVISI_SECRET_FILE={}\n", shell_quote(files.secret));
  }
  // Labels differ by rank; everything else Slurm's variables say (spec 6.4 and 6.6).
  json::Value spec;
  json::Array tasks;
  for (const RunWorker& worker : job.workers) {
    json::Value task{json::Object()};
    if (!worker.labels.empty()) task["labels"] = fmt::format("{}", fmt::join(worker.labels, ","));
    tasks.push_back(std::move(task));
  }
  spec["tasks"] = std::move(tasks);
  RunJob without_labels = job;
  without_labels.options.labels.clear();
  std::vector<std::string> words = {"srun", fmt::format("--ntasks={}", options.workers),
                                    "--kill-on-bad-exit=1"};
  if (!files.output.empty()) words.push_back("--output=" + files.output);
  if (!files.error.empty()) words.push_back("--error=" + files.error);
  words.insert(words.end(), {"sh", "-c"});
  words.push_back(
      fmt::format("if [ \"$SLURM_PROCID\" -lt {} ]; then "
                  "export CUDA_VISIBLE_DEVICES=\"${{CUDA_VISIBLE_DEVICES:-$SLURM_LOCALID}}\"; "
                  "else export CUDA_VISIBLE_DEVICES=; fi; exec {} \"$@\"",
                  options.gpus, shell_quote(ditask)));
  words.emplace_back("sh");
  std::vector<std::string> shared = shared_arguments(without_labels, false);
  const auto program = std::ranges::find(shared, "--");
  words.insert(words.end(), shared.begin(), program);
  for (const std::string& word : {std::string("--platform"), std::string("slurm"),
                                  std::string("--platform-spec"), json::print(spec)}) {
    words.push_back(word);
  }
  words.insert(words.end(), program, shared.end());
  return text + "exec " + shell_line(words) + "\n";
}

std::string kubectl_script(const RunJob& job, const std::vector<json::Value>& documents) {
  std::string flags;
  if (!job.options.kubeconfig.empty()) {
    flags += " --kubeconfig " + shell_quote(job.options.kubeconfig);
  }
  if (!job.options.context.empty()) flags += " --context " + shell_quote(job.options.context);
  std::string text = fmt::format("#!/bin/sh\nkubectl apply{} -f - <<'END_OF_OBJECTS'\n", flags);
  for (const json::Value& document : documents) text += "---\n" + json::print_yaml(document);
  return text + "END_OF_OBJECTS\n";
}

}  // namespace divisi::run
