#include "dijob/pod_env.h"

#include "dijob/names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <string_view>
#include <utility>

namespace divisi::dijob {
namespace {

constexpr int kMasterPort = 10314;  // of distributed learners, since the first generation

std::string nodes_variable(std::string_view task) {
  std::string name = "DI_";
  for (const char c : task) {
    name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name + "_NODES";
}

template <class Text>
std::string list(int count, const Text& text) {
  std::string joined;
  for (int i = 0; i < count; ++i) {
    if (i > 0) joined += ',';
    joined += text(i);
  }
  return joined;
}

// Linux starts no process with a longer "NAME=value" (MAX_ARG_STRLEN, with the zero at its end).
constexpr std::size_t kMaxVariable = 128 * 1024 - 1;

Status check_list(std::string_view name, std::size_t characters) {
  characters += name.size() + 1;
  if (characters <= kMaxVariable) return {};
  return make_status(Code::kInvalid,
                     "the hosts of the job would make {} {} characters long, and Linux takes {} in "
                     "a variable: ask for fewer replicas, or give the job a shorter name",
                     name, characters, kMaxVariable);
}

}  // namespace

// As long as with the longest number everywhere, and a gang that was made anew hundreds of times.
Status check_lists(const Job& job, const ClusterNames& names) {
  constexpr int kGeneration = 999;
  std::size_t hosts = 0;
  std::size_t dialled = 0;
  for (const Task& task : job.tasks) {
    const int most = job.form == Form::kTasks
                         ? task.replicas
                         : std::max(job.max_replicas.value_or(job.min_replicas), task.replicas);
    const Slot last{task.name, std::max(most - 1, 0), std::max(most - 1, 0)};
    hosts += static_cast<std::size_t>(most) * (pod_host(job, last, kGeneration, names).size() + 1);
    if (job.topology != "mesh") continue;
    const auto workers = static_cast<std::size_t>(job.parallel_workers);
    const std::size_t address = pod_name(job, last, kGeneration).size() + service_name(job).size() +
                                std::string_view("tcp://.:22270,").size();
    dialled += static_cast<std::size_t>(most) * workers * address;
  }
  DIVISI_TRY_STATUS(check_list("DI_NODES", hosts));
  return check_list("DI_ATTACHED_NODES_ARG", dialled);
}

PodVariables::PodVariables(const Job& job, const PodPeers& peers) : job_(job), peers_(peers) {
  write_nodes();
  write_dialled();
}

std::string PodVariables::host(const Slot& slot) const {
  return pod_host(job_, slot, peers_.generation, peers_.names);
}

// Every rank is in DI_NODES, also one that is not run at present: the position is the rank.
// A task's own list has the replicas that there are.
void PodVariables::write_nodes() {
  std::vector<std::string> hosts;
  for (const Slot& slot : peers_.all) hosts.push_back(host(slot));
  nodes_.push_back({"DI_NODES", fmt::format("{}", fmt::join(hosts, ","))});
  for (const Task& task : job_.tasks) {
    if (task.name.empty()) continue;
    std::vector<std::pair<int, std::string_view>> own;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      const Slot& slot = peers_.all[i];
      if (slot.task == task.name && slot.index < task.replicas)
        own.emplace_back(slot.index, hosts[i]);
    }
    std::ranges::sort(own);
    nodes_.push_back(
        {nodes_variable(task.name), fmt::format("{}", fmt::join(std::views::values(own), ","))});
  }
}

// A mesh dials those before it: the beginning of one list.
void PodVariables::write_dialled() {
  const bool mesh = job_.topology == "mesh";
  const int workers = mesh ? job_.parallel_workers : 1;
  for (const Slot& slot : peers_.all) {
    const std::string name = pod_name(job_, slot, peers_.generation);
    for (int worker = 0; worker < workers; ++worker) {
      if (!dialled_.empty()) dialled_ += ',';
      fmt::format_to(std::back_inserter(dialled_), "tcp://{}.{}:{}", name, service_name(job_),
                     kDefaultPort + worker);
    }
    ends_.push_back(dialled_.size());
    if (!mesh) break;  // everybody dials the first
  }
}

std::string PodVariables::attached_nodes(int rank) const {
  if (rank == 0 || job_.topology == "alone" || ends_.empty()) return {};
  const auto before = std::min(static_cast<std::size_t>(rank), ends_.size());
  return "--attach-to=" + dialled_.substr(0, ends_[before - 1]);
}

std::vector<Variable> PodVariables::of(const PodPlace& place) const {
  std::vector<Variable> all;
  const auto set = [&all](std::string name, std::string value) {
    all.push_back({std::move(name), std::move(value)});
  };
  set("DI_JOB_ID", fmt::format("{}/{}", job_.space, job_.name));
  set("DI_SERVER_URL", peers_.names.server_url);
  set("DI_RANK", std::to_string(place.slot.rank));
  set("DI_JOB_GENERATION", std::to_string(peers_.generation));
  all.insert(all.end(), nodes_.begin(), nodes_.end());

  // The command line of an engine of the first v2alpha1 release, piece by piece.
  const int workers = job_.parallel_workers;
  const std::int64_t first_id = std::int64_t{workers} * place.slot.rank;
  set("DI_PARALLEL_WORKERS_ARG", fmt::format("--parallel-workers={}", workers));
  set("DI_PORTS_ARG",
      "--ports=" + list(workers, [](int worker) { return std::to_string(kDefaultPort + worker); }));
  set("DI_NODE_IDS_ARG", "--node-ids=" + list(workers, [first_id](int worker) {
                           return std::to_string(first_id + worker);
                         }));
  set("DI_ATTACHED_NODES_ARG", attached_nodes(place.slot.rank));

  // What a distributed learner expects, within its own task.
  const Task* const task = job_.find_task(place.slot.task);
  const int world = job_.form == Form::kTasks && task != nullptr ? task->replicas : peers_.replicas;
  set("MASTER_ADDR", host({place.slot.task, 0, 0}));
  set("MASTER_PORT", std::to_string(kMasterPort));
  set("WORLD_SIZE", std::to_string(world));
  set("RANK", std::to_string(place.slot.index));
  return all;
}

}  // namespace divisi::dijob
