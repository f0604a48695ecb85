#include "launch/platform.h"

#include "launch/hostlist.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace divisi::launch {
namespace {

constexpr int kMost = static_cast<int>(kMaxHosts);
constexpr int kSlurmPort = 15151;

Result<std::string_view> required(const Environment& environment, std::string_view name,
                                  std::string_view platform) {
  const auto value = lookup(environment, name);
  if (!value) {
    return failure(Code::kInvalid, "platform {}: the environment variable {} is not set", platform,
                   name);
  }
  return *value;
}

Result<std::optional<int>> optional_int(const Environment& environment, std::string_view name) {
  const auto value = lookup(environment, name);
  if (!value) return std::optional<int>();
  DIVISI_TRY(const int number, parse_int(*value, 0, kMost, name));
  return std::optional<int>(number);
}

// How Slurm deals tasks to hosts: `run` tasks to a host, then the next host, round and round.
// Block is a run as long as the host takes, cyclic a run of one, plane=N a run of N.
std::vector<Place> deal(const std::vector<std::string>& hosts, const std::vector<int>& counts,
                        int run, int tasks) {
  std::vector<int> dealt(hosts.size(), 0);
  std::vector<Place> places;
  while (places.size() < static_cast<std::size_t>(tasks)) {
    const std::size_t before = places.size();
    for (std::size_t host = 0; host < hosts.size(); ++host) {
      for (int i = 0; i < run && dealt[host] < counts[host]; ++i) {
        if (places.size() == static_cast<std::size_t>(tasks)) return places;
        places.push_back({hosts[host], dealt[host]++});
      }
    }
    if (places.size() == before) break;  // every host is full
  }
  return places;
}

Result<std::vector<int>> read_task_counts(const Environment& environment, std::size_t hosts) {
  if (const auto per_host = lookup(environment, "SLURM_TASKS_PER_NODE")) {
    auto counts = expand_task_counts(*per_host);
    if (!counts) return failure(counts.error().with_context("SLURM_TASKS_PER_NODE"));
    if (counts->size() != hosts) {
      return failure(Code::kInvalid,
                     "platform slurm: SLURM_TASKS_PER_NODE is for {} hosts, the node list names {}",
                     counts->size(), hosts);
    }
    return counts;
  }
  if (const auto count = lookup(environment, "SLURM_NTASKS_PER_NODE")) {
    DIVISI_TRY(const int tasks, parse_int(*count, 1, kMost, "SLURM_NTASKS_PER_NODE"));
    return std::vector<int>(hosts, tasks);
  }
  return failure(Code::kInvalid,
                 "platform slurm: neither SLURM_TASKS_PER_NODE nor SLURM_NTASKS_PER_NODE is set");
}

Result<std::vector<int>> candidate_runs(const Environment& environment) {
  constexpr int kBlock = kMost;
  constexpr int kCyclic = 1;
  const auto variable = lookup(environment, "SLURM_DISTRIBUTION");
  if (!variable) return std::vector<int>{kBlock, kCyclic};
  const std::string_view kind = variable->substr(0, variable->find_first_of(":,"));
  if (kind == "block") return std::vector<int>{kBlock};
  if (kind == "cyclic") return std::vector<int>{kCyclic};
  if (kind.substr(0, 6) == "plane=") {
    DIVISI_TRY(const int run, parse_int(kind.substr(6), 1, kMost, "SLURM_DISTRIBUTION"));
    return std::vector<int>{run};
  }
  return std::vector<int>{kBlock, kCyclic};
}

// Places for all tasks, by the first distribution that agrees with what this task knows of itself.
Status place_tasks(const Environment& environment, const std::vector<std::string>& hosts,
                   const std::vector<int>& counts, int tasks, Cluster& cluster) {
  const auto node_id = optional_int(environment, "SLURM_NODEID");
  const auto local_id = optional_int(environment, "SLURM_LOCALID");
  const auto runs = candidate_runs(environment);
  if (!node_id) return node_id.error();
  if (!local_id) return local_id.error();
  if (!runs) return runs.error();
  const auto host = static_cast<std::size_t>(node_id->value_or(0));
  const int local = local_id->value_or(0);
  if (host >= hosts.size()) {
    return make_status(
        Code::kInvalid,
        "platform slurm: SLURM_NODEID={} is out of range, the node list names {} hosts", host,
        hosts.size());
  }
  const auto rank = static_cast<std::size_t>(cluster.rank);
  for (const int run : *runs) {
    cluster.places = deal(hosts, counts, run, tasks);
    const Place& own = cluster.places[rank];
    const bool host_agrees = !node_id->has_value() || own.host == hosts[host];
    if (host_agrees && (!local_id->has_value() || own.index_on_host == local)) return {};
  }
  Place& own = cluster.places[rank];
  if (node_id->has_value()) own.host = hosts[host];
  if (local_id->has_value()) own.index_on_host = local;
  cluster.warnings.emplace_back(
      "platform slurm: SLURM_NODEID and SLURM_LOCALID fit no task distribution known here, so the "
      "addresses of other tasks may be wrong; give attach_to in --platform-spec");
  return {};
}

}  // namespace

std::string_view platform_name(Platform platform) {
  switch (platform) {
    case Platform::kNone: return "none";
    case Platform::kKubernetes: return "k8s";
    case Platform::kSlurm: return "slurm";
  }
  return "none";
}

Result<Platform> parse_platform(std::string_view text) {
  for (const Platform platform : {Platform::kNone, Platform::kKubernetes, Platform::kSlurm}) {
    if (text == platform_name(platform)) return platform;
  }
  return failure(Code::kInvalid, "--platform: '{}' is not one of k8s, slurm, none",
                 text.substr(0, 40));
}

bool looks_like_kubernetes(const Environment& environment) {
  return lookup(environment, "DI_NODES") && lookup(environment, "DI_RANK");
}

namespace {

// "a,,b", ",a": an empty place before another one.
bool has_gap(std::string_view list) {
  std::size_t begin = 0;
  for (std::size_t comma = list.find(','); comma != std::string_view::npos;
       comma = list.find(',', begin)) {
    if (trimmed(list.substr(begin, comma - begin)).empty()) return true;
    begin = comma + 1;
  }
  return false;
}

}  // namespace

Result<Cluster> read_kubernetes(const Environment& environment) {
  DIVISI_TRY(const auto nodes, required(environment, "DI_NODES", "k8s"));
  DIVISI_TRY(const auto rank, required(environment, "DI_RANK", "k8s"));
  Cluster cluster;
  cluster.platform = Platform::kKubernetes;
  if (has_gap(nodes)) {
    return failure(Code::kInvalid, "DI_NODES='{}' has an empty place: a host's place is its rank",
                   shown(nodes));
  }
  for (std::string& host : split_list(nodes)) {
    if (const Status status = check_host(host, "DI_NODES"); !status.ok()) return failure(status);
    cluster.places.push_back({std::move(host), 0});
    if (cluster.places.size() > kMaxHosts) {
      return failure(Code::kInvalid, "DI_NODES names more than {} hosts", kMaxHosts);
    }
  }
  DIVISI_TRY(cluster.rank, parse_int(rank, 0, kMost, "DI_RANK"));
  if (static_cast<std::size_t>(cluster.rank) >= cluster.places.size()) {
    return failure(Code::kInvalid, "DI_RANK={} is out of range: DI_NODES names {} hosts",
                   cluster.rank, cluster.places.size());
  }
  cluster.job_id = lookup(environment, "DI_JOB_ID").value_or("");
  return cluster;
}

Result<Cluster> read_slurm(const Environment& environment) {
  Cluster cluster;
  cluster.platform = Platform::kSlurm;
  cluster.default_port = kSlurmPort;
  cluster.job_id = lookup(environment, "SLURM_JOB_ID").value_or("");

  auto list = lookup(environment, "SLURM_NODELIST");
  if (!list) list = lookup(environment, "SLURM_JOB_NODELIST");
  if (!list) {
    return failure(Code::kInvalid,
                   "platform slurm: neither SLURM_NODELIST nor SLURM_JOB_NODELIST is set");
  }
  const auto hosts = expand_host_list(*list);
  if (!hosts) return failure(hosts.error().with_context("SLURM_NODELIST"));
  DIVISI_TRY(const auto counts, read_task_counts(environment, hosts->size()));
  const std::int64_t room = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (room > kMost) {
    return failure(Code::kInvalid, "platform slurm: {} tasks are more than {}", room, kMost);
  }
  DIVISI_TRY(const auto given_tasks, optional_int(environment, "SLURM_NTASKS"));
  const int tasks = given_tasks.value_or(static_cast<int>(room));
  if (tasks > room) {
    return failure(Code::kInvalid,
                   "platform slurm: SLURM_NTASKS={}, but the hosts take only {} tasks", tasks,
                   room);
  }
  DIVISI_TRY(const auto procid, required(environment, "SLURM_PROCID", "slurm"));
  DIVISI_TRY(cluster.rank, parse_int(procid, 0, kMost, "SLURM_PROCID"));
  if (cluster.rank >= tasks) {
    return failure(Code::kInvalid, "SLURM_PROCID={} is out of range: the job has {} tasks",
                   cluster.rank, tasks);
  }
  if (const Status status = place_tasks(environment, *hosts, counts, tasks, cluster);
      !status.ok()) {
    return failure(status);
  }
  const std::string& host = cluster.places[static_cast<std::size_t>(cluster.rank)].host;
  if (const auto name = lookup(environment, "SLURMD_NODENAME"); name && *name != host) {
    cluster.warnings.push_back(
        fmt::format("platform slurm: SLURMD_NODENAME is {}, the node list says {}; listening on {}",
                    name->substr(0, 80), host, host));
  }
  return cluster;
}

}  // namespace divisi::launch
