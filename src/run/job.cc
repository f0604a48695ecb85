#include "run/job.h"

#include "io/crypto.h"
#include "launch/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace divisi::run {
namespace {

std::vector<std::string> labels_of(const RunOptions& options, bool gpu) {
  std::vector<std::string> labels;
  if (gpu) labels.emplace_back("gpu");
  labels.insert(labels.end(), options.labels.begin(), options.labels.end());
  return labels;
}

// Every process of the workers that worker `rank` dials (spec 6.5 and 6.9).
std::string attach_to(const RunOptions& options, const std::vector<std::string>& hosts, int rank) {
  int last = 0;  // worker behind the last one that is dialled
  if (options.topology == "mesh") last = rank;
  if (options.topology == "star") last = std::min(rank, 1);
  std::vector<std::string> addresses;
  for (int other = 0; other < last; ++other) {
    for (int process = 0; process < options.parallel_workers; ++process) {
      addresses.push_back(fmt::format("tcp://{}:{}", hosts[static_cast<std::size_t>(other)],
                                      options.port + process));
    }
  }
  return fmt::format("{}", fmt::join(addresses, ","));
}

void add_program(const RunJob& job, std::vector<std::string>& arguments) {
  if (job.options.command.empty()) return;
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), job.options.command.begin(), job.options.command.end());
}

std::vector<std::string> first_arguments(const RunJob& job) {
  std::vector<std::string> arguments;
  if (job.options.command.empty()) {
    arguments = {"--package", job.package, "--main", job.entry};
  }
  for (const auto& [flag, value] :
       {std::pair<std::string, std::string>{"--parallel-workers",
                                            std::to_string(job.options.parallel_workers)},
        {"--protocol", "tcp"},
        {"--ports", std::to_string(job.options.port)},
        {"--topology", job.options.topology}}) {
    arguments.push_back(flag);
    arguments.push_back(value);
  }
  return arguments;
}

std::vector<std::string> worker_arguments(const RunJob& job, const Place& place,
                                          const RunWorker& worker) {
  std::vector<std::string> arguments = first_arguments(job);
  const auto add = [&](std::string flag, std::string value) {
    if (value.empty()) return;
    arguments.push_back(std::move(flag));
    arguments.push_back(std::move(value));
  };
  add("--node-ids", std::to_string(worker.rank * job.options.parallel_workers));
  add("--labels", fmt::format("{}", fmt::join(worker.labels, ",")));
  add("--attach-to", attach_to(job.options, place.hosts, worker.rank));
  if (place.listen_on_host) add("--address", worker.host);
  add_program(job, arguments);
  return arguments;
}

std::string device_of(const Place& place, const RunWorker& worker) {
  if (!worker.gpu) return "";
  if (!place.devices) return std::to_string(worker.rank);
  const auto rank = static_cast<std::size_t>(worker.rank);
  return rank < place.devices->size() ? (*place.devices)[rank] : "";
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:=,@%+").find(c) != std::string_view::npos;
}

}  // namespace

Result<RunJob> make_job(const RunOptions& options, BackendKind backend, const std::string& entry,
                        const Place& place) {
  if (static_cast<int>(place.hosts.size()) != options.workers) {
    return failure(Code::kInvalid, "{} hosts for {} workers", place.hosts.size(), options.workers);
  }
  RunJob job;
  job.name = options.name.empty() ? make_up_name(options.command.empty() ? entry : "run.command")
                                  : options.name;
  job.backend = backend;
  job.options = options;
  job.entry = entry;
  if (options.command.empty()) {
    job.package = place.package.empty() ? options.package : place.package;
  }
  for (int rank = 0; rank < options.workers; ++rank) {
    RunWorker worker;
    worker.rank = rank;
    worker.host = place.hosts[static_cast<std::size_t>(rank)];
    worker.gpu = rank < options.gpus;
    worker.labels = labels_of(options, worker.gpu);
    worker.arguments = worker_arguments(job, place, worker);
    worker.environment = options.environment;
    if (place.visible_devices) {
      // What the user says wins.
      const bool said = std::ranges::any_of(options.environment, [](const auto& pair) {
        return pair.first == "CUDA_VISIBLE_DEVICES";
      });
      if (!said) worker.environment.emplace_back("CUDA_VISIBLE_DEVICES", device_of(place, worker));
    }
    job.workers.push_back(std::move(worker));
  }
  return job;
}

std::vector<std::string> shared_arguments(const RunJob& job, bool gpu) {
  std::vector<std::string> arguments = first_arguments(job);
  const std::vector<std::string> labels = labels_of(job.options, gpu);
  if (!labels.empty()) {
    arguments.emplace_back("--labels");
    arguments.push_back(fmt::format("{}", fmt::join(labels, ",")));
  }
  add_program(job, arguments);
  return arguments;
}

std::string make_up_name(std::string_view entry) {
  constexpr std::size_t kLongest = 24;
  constexpr std::size_t kRandom = 5;
  // Without vowels, so that no word comes out, and without what looks alike.
  constexpr std::string_view kLetters = "bcdfghjkmnpqrstvwxz2456789";
  std::string_view module =
      entry.substr(0, entry.rfind(entry.find(".so:") == entry.npos ? '.' : ':'));
  module = module.substr(0, module.find(".so"));
  module.remove_prefix(std::min(module.find_last_of("./") + 1, module.size()));
  std::string name;
  for (const char c : module) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (plain ? !name.empty() || lower >= 'a' : !name.empty() && !name.ends_with('-')) {
      name += plain ? lower : '-';
    }
    if (name.size() == kLongest) break;
  }
  if (name.empty()) name = "job";
  if (!name.ends_with('-')) name += '-';
  std::uint64_t random = io::random_u64();
  for (std::size_t i = 0; i < kRandom; ++i, random /= kLetters.size()) {
    name += kLetters[random % kLetters.size()];
  }
  return name;
}

std::string shell_quote(std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += shell_quote(word);
  }
  return line;
}

json::Value job_document(const RunJob& job) {
  json::Value document;
  document["job"] = job.name;
  document["backend"] = backend_name(job.backend);
  json::Array workers;
  for (const RunWorker& worker : job.workers) {
    json::Value item;
    item["rank"] = worker.rank;
    item["host"] = worker.host;
    if (worker.gpu) item["gpu"] = true;
    json::Array command{json::Value("ditask")};
    for (const std::string& argument : worker.arguments) command.emplace_back(argument);
    item["command"] = std::move(command);
    json::Value environment{json::Object()};
    for (const auto& [name, value] : worker.environment) environment[name] = value;
    item["environment"] = std::move(environment);
    workers.push_back(std::move(item));
  }
  document["workers"] = std::move(workers);
  return document;
}

}  // namespace divisi::run
