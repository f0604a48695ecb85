#include "launch/job_tasks.h"

#include "io/address.h"
#include "launch/limits.h"
#include "launch/text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace divisi::launch {
namespace {

using runtime::Topology;

constexpr std::string_view kNodePrefix = "$node.";
constexpr int kLargestPort = 65535;

std::string tcp_address(const std::string& host, int port) {
  io::Address address;
  address.host = host;
  address.port = static_cast<std::uint16_t>(port);
  return address.to_string();
}

Result<std::vector<int>> task_ports(const Cluster& cluster, std::size_t rank, const TaskSpec& entry,
                                    const JobDefaults& defaults, int workers, int workers_before) {
  if (!entry.port && defaults.ports.size() > 1) {
    if (cluster.platform == Platform::kSlurm) {
      return failure(
          Code::kInvalid,
          "--ports: platform slurm takes one base port, tasks of a host count up from it");
    }
    if (defaults.ports.size() != static_cast<std::size_t>(workers)) {
      return failure(Code::kInvalid, "--ports: {} ports were given for {} workers",
                     defaults.ports.size(), workers);
    }
    return defaults.ports;
  }
  const int base = defaults.ports.empty() ? cluster.default_port : defaults.ports.front();
  // Tasks that share a host share its ports: each starts where the one before it ends.
  const int offset = cluster.platform == Platform::kSlurm ? workers_before : 0;
  const int first = entry.port.value_or(base + offset);
  if (first + workers - 1 > kLargestPort) {
    return failure(Code::kInvalid, "task {}: its {} ports from {} on go beyond {}", rank, workers,
                   first, kLargestPort);
  }
  std::vector<int> ports;
  for (int i = 0; i < workers; ++i) ports.push_back(first + i);
  return ports;
}

Status check_ids(const std::vector<JobTask>& tasks) {
  std::map<int, std::pair<int, std::size_t>> used;  // first id -> end, rank
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    const int first = tasks[rank].node_id;
    const int end = first + tasks[rank].workers;
    const auto next = used.lower_bound(end);
    if (next != used.begin()) {
      const auto& [other_first, other] = *std::prev(next);
      if (other.first > first) {
        return make_status(Code::kInvalid,
                           "platform spec: node id {} belongs to task {} and to task {}",
                           std::max(first, other_first), other.second, rank);
      }
    }
    used.emplace(first, std::pair(end, rank));
  }
  return {};
}

using IdIndex = std::unordered_map<int, std::size_t>;

std::string known_ids(const std::vector<JobTask>& tasks) {
  constexpr std::size_t kShown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(tasks.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", tasks[i].node_id);
  }
  if (tasks.size() > kShown) text += ", ...";
  return text;
}

// `$node.31` -> the rank of the task with that id.
Result<std::size_t> find_node(std::string_view reference, const std::vector<JobTask>& tasks,
                              const IdIndex& ids, std::size_t rank) {
  const std::string what =
      fmt::format("platform spec: tasks[{}].attach_to: {}", rank, shown(reference));
  const auto id = parse_int(reference.substr(kNodePrefix.size()), 0, kMaxNodeId, what);
  if (!id) return failure(id.error());
  const auto found = ids.find(*id);
  if (found == ids.end()) {
    return failure(Code::kInvalid, "{} names no task (node ids: {})", what, known_ids(tasks));
  }
  if (found->second == rank) return failure(Code::kInvalid, "{} is this task itself", what);
  return found->second;
}

// Replaces the references of all tasks. Addresses do not depend on links, so any order resolves;
// two tasks that dial each other would make two links of one, and are refused by name.
Status resolve_attach_to(const std::vector<TaskSpec>& spec, std::vector<JobTask>& tasks) {
  IdIndex ids;
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) ids.emplace(tasks[rank].node_id, rank);
  std::set<std::pair<std::size_t, std::size_t>> links;
  for (std::size_t rank = 0; rank < spec.size(); ++rank) {
    const auto& given = spec[rank].attach_to;
    if (!given) continue;
    std::vector<std::string> addresses;
    for (const std::string& part : *given) {
      if (!std::string_view(part).starts_with(kNodePrefix)) {
        auto address = runtime::peer_address(part);
        if (!address) {
          return address.error().with_context(
              fmt::format("platform spec: tasks[{}].attach_to", rank));
        }
        addresses.push_back(*std::move(address));
        continue;
      }
      const auto other = find_node(part, tasks, ids, rank);
      if (!other) return other.error();
      if (links.contains({*other, rank})) {
        return make_status(Code::kInvalid,
                           "platform spec: tasks {} and {} (nodes {} and {}) attach to each other; "
                           "a link carries both directions, so remove one of the two",
                           *other, rank, tasks[*other].node_id, tasks[rank].node_id);
      }
      links.emplace(rank, *other);
      addresses.push_back(tcp_address(tasks[*other].address, tasks[*other].ports.front()));
    }
    tasks[rank].attach_to = std::move(addresses);
  }
  return {};
}

}  // namespace

std::vector<std::string> JobTask::listen_addresses() const {
  std::vector<std::string> addresses;
  for (const int port : ports) addresses.push_back(tcp_address(address, port));
  return addresses;
}

Result<std::vector<JobTask>> make_job_tasks(const Cluster& cluster,
                                            const std::vector<TaskSpec>& spec,
                                            const JobDefaults& defaults) {
  std::vector<JobTask> tasks;
  std::unordered_map<std::string, std::map<int, int>> workers_on_host;  // host -> index -> workers
  std::int64_t nodes = 0;
  for (std::size_t rank = 0; rank < cluster.places.size(); ++rank) {
    const TaskSpec entry = spec.empty() ? TaskSpec() : spec[rank];
    const int workers = entry.parallel_workers.value_or(defaults.workers);
    workers_on_host[cluster.places[rank].host][cluster.places[rank].index_on_host] = workers;
    nodes += workers;
  }
  if (nodes > kMaxNodes) {
    return failure(Code::kInvalid, "the job has {} nodes, more than {}", nodes, kMaxNodes);
  }
  int next_id = 0;
  std::unordered_map<std::string, std::unordered_map<int, int>> before;
  for (auto& [host, by_index] : workers_on_host) {
    int sum = 0;
    for (const auto& [index, workers] : by_index) {
      before[host][index] = sum;
      sum += workers;
    }
  }
  for (std::size_t rank = 0; rank < cluster.places.size(); ++rank) {
    const Place& place = cluster.places[rank];
    const TaskSpec entry = spec.empty() ? TaskSpec() : spec[rank];
    JobTask task;
    task.address = entry.address.value_or(place.host);
    task.workers = entry.parallel_workers.value_or(defaults.workers);
    task.node_id = entry.node_id.value_or(next_id);
    next_id += task.workers;
    DIVISI_TRY(task.ports, task_ports(cluster, rank, entry, defaults, task.workers,
                                      before[place.host][place.index_on_host]));
    tasks.push_back(std::move(task));
  }
  if (const Status status = check_ids(tasks); !status.ok()) return failure(status);
  if (const Status status = resolve_attach_to(spec, tasks); !status.ok()) return failure(status);
  return tasks;
}

std::vector<std::string> topology_attach_to(const std::vector<JobTask>& tasks, int rank,
                                            Topology topology) {
  std::size_t end = 0;
  if (topology == Topology::kMesh) end = static_cast<std::size_t>(rank);
  if (topology == Topology::kStar && rank > 0) end = 1;
  std::vector<std::string> addresses;
  for (std::size_t other = 0; other < end; ++other) {
    for (std::string& address : tasks[other].listen_addresses()) {
      addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

std::vector<std::vector<int>> peers_in_job(const std::vector<JobTask>& tasks, int rank,
                                           const std::vector<std::string>& attach_to,
                                           Topology topology) {
  const auto own_rank = static_cast<std::size_t>(rank);
  const std::unordered_set<std::string> dialled(attach_to.begin(), attach_to.end());
  const std::vector<std::string> own_addresses = tasks[own_rank].listen_addresses();
  std::vector<std::vector<int>> peers(own_addresses.size());
  for (std::size_t other = 0; other < tasks.size(); ++other) {
    if (other == own_rank) continue;
    const auto& theirs = tasks[other].attach_to;
    const bool dials_by_topology = !theirs && ((topology == Topology::kMesh && other > own_rank) ||
                                               (topology == Topology::kStar && rank == 0));
    std::vector<bool> dialled_by_us;
    for (const std::string& address : tasks[other].listen_addresses()) {
      dialled_by_us.push_back(dialled.contains(address));
    }
    for (std::size_t worker = 0; worker < peers.size(); ++worker) {
      const bool dials_us =
          dials_by_topology || (theirs && std::find(theirs->begin(), theirs->end(),
                                                    own_addresses[worker]) != theirs->end());
      for (std::size_t i = 0; i < dialled_by_us.size(); ++i) {
        if (dials_us || dialled_by_us[i]) {
          peers[worker].push_back(tasks[other].node_id + static_cast<int>(i));
        }
      }
    }
  }
  return peers;
}

}  // namespace divisi::launch
