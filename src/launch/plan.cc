#include "launch/plan.h"

#include "launch/job_tasks.h"
#include "launch/limits.h"
#include "launch/platform_spec.h"

#include <algorithm>
#include <utility>

namespace divisi::launch {
namespace {

using runtime::Protocol;
using runtime::Topology;

// The request with its texts read.
struct Flags {
  int workers = 1;
  std::optional<Protocol> protocol;
  std::vector<int> ports;
  std::optional<std::string> address;
  std::optional<std::vector<std::string>> attach_to;
  std::optional<std::set<std::string>> labels;
  std::optional<std::vector<int>> node_ids;
  std::optional<Topology> topology;
};

Result<std::vector<int>> parse_ports(const std::string& text) {
  std::vector<int> ports;
  for (const std::string& part : split_list(text)) {
    DIVISI_TRY(const int port, parse_port(part, "--ports"));
    ports.push_back(port);
  }
  if (ports.empty()) return failure(Code::kInvalid, "--ports: the list is empty");
  return ports;
}

Result<std::vector<int>> parse_node_ids(const std::string& text) {
  std::vector<int> ids;
  for (const std::string& part : split_list(text)) {
    DIVISI_TRY(const int id, parse_int(part, 0, kMaxNodeId, "--node-ids"));
    ids.push_back(id);
  }
  if (ids.empty()) return failure(Code::kInvalid, "--node-ids: the list is empty");
  return ids;
}

Result<std::vector<std::string>> parse_attach_to(const std::string& text) {
  std::vector<std::string> addresses;
  for (const std::string& part : split_list(text)) {
    auto address = runtime::peer_address(part);
    if (!address) return failure(address.error().with_context("--attach-to"));
    if (std::ranges::find(addresses, *address) == addresses.end()) {
      addresses.push_back(*std::move(address));
    }
    if (addresses.size() > static_cast<std::size_t>(kMaxNodes)) {
      return failure(Code::kInvalid, "--attach-to: more than {} addresses", kMaxNodes);
    }
  }
  return addresses;
}

Result<Flags> parse_flags(const LaunchRequest& request) {
  Flags flags;
  if (request.parallel_workers) {
    DIVISI_TRY(flags.workers,
               parse_int(trimmed(*request.parallel_workers), 1, kMaxWorkers, "--parallel-workers"));
  }
  if (request.protocol) {
    auto protocol = runtime::parse_protocol(*request.protocol);
    if (!protocol) return failure(protocol.error().with_context("--protocol"));
    flags.protocol = *protocol;
  }
  if (request.topology) {
    auto topology = runtime::parse_topology(*request.topology);
    if (!topology) return failure(topology.error().with_context("--topology"));
    flags.topology = *topology;
  }
  if (request.ports) {
    DIVISI_TRY(flags.ports, parse_ports(*request.ports));
  }
  if (request.node_ids) {
    DIVISI_TRY(flags.node_ids, parse_node_ids(*request.node_ids));
  }
  if (request.attach_to) {
    DIVISI_TRY(flags.attach_to, parse_attach_to(*request.attach_to));
  }
  if (request.address) {
    flags.address = std::string(trimmed(*request.address));
    if (const Status status = check_host(*flags.address, "--address"); !status.ok()) {
      return failure(status);
    }
  }
  if (request.labels) {
    const std::vector<std::string> labels = split_list(*request.labels);
    flags.labels.emplace(labels.begin(), labels.end());
    if (flags.labels->size() > static_cast<std::size_t>(kMaxLabels)) {
      return failure(Code::kInvalid, "--labels: more than {} labels", kMaxLabels);
    }
  }
  return flags;
}

// --platform, or k8s where the operator's variables are there (P10), unless the command line is
// made of the variables that pods of the template form get: they say everything themselves.
Result<Platform> choose_platform(const LaunchRequest& request, const Environment& environment) {
  if (request.platform) return parse_platform(*request.platform);
  if (request.node_ids && lookup(environment, "DI_NODE_IDS_ARG")) return Platform::kNone;
  return looks_like_kubernetes(environment) ? Platform::kKubernetes : Platform::kNone;
}

Status pad(const Flags& flags, LaunchPlan& plan) {
  auto ports = runtime::pad_ports(plan.ports, plan.workers);
  if (!ports) return ports.error().with_context("--ports");
  plan.ports = *std::move(ports);
  auto ids = runtime::pad_node_ids(flags.node_ids.value_or(plan.node_ids), plan.workers);
  if (!ids) return ids.error().with_context("--node-ids");
  plan.node_ids = *std::move(ids);
  return {};
}

// Nothing speaks of another launcher or host.
bool is_local(const LaunchRequest& request, const Environment& environment) {
  return !request.ports && !request.address && !request.attach_to && !request.platform &&
         !lookup(environment, "DI_NODES");
}

Result<LaunchPlan> local_plan(const Flags& flags, const LaunchRequest& request,
                              const Environment& environment) {
  if (request.platform_spec) {
    return failure(Code::kInvalid, "--platform-spec needs --platform k8s or slurm");
  }
  LaunchPlan plan;
  plan.workers = flags.workers;
  plan.ports = flags.ports;
  plan.address = flags.address.value_or("");
  plan.attach_to = flags.attach_to.value_or(std::vector<std::string>());
  plan.labels = flags.labels.value_or(std::set<std::string>());
  plan.topology = flags.topology.value_or(Topology::kMesh);
  plan.protocol =
      flags.protocol.value_or(is_local(request, environment) ? Protocol::kIpc : Protocol::kTcp);
  plan.job_id = request.job_id.value_or("");
  if (const Status status = pad(flags, plan); !status.ok()) return failure(status);
  return plan;
}

Result<std::vector<TaskSpec>> read_spec(const LaunchRequest& request, const Cluster& cluster,
                                        LaunchPlan& plan) {
  if (!request.platform_spec) return std::vector<TaskSpec>();
  DIVISI_TRY(auto spec, parse_platform_spec(*request.platform_spec));
  const std::size_t places = cluster.places.size();
  if (spec.size() < places) {
    return failure(Code::kInvalid,
                   "platform spec: it has {} tasks, the job has {} (no entry for tasks[{}])",
                   spec.size(), places, spec.size());
  }
  if (spec.size() > places) {
    plan.warnings.push_back(fmt::format(
        "platform spec: it has {} tasks, the job has {}; tasks[{}] and later are unused",
        spec.size(), places, places));
    spec.resize(places);
  }
  return spec;
}

Result<LaunchPlan> cluster_plan(const Flags& flags, const LaunchRequest& request, Cluster cluster) {
  LaunchPlan plan;
  plan.platform = cluster.platform;
  plan.rank = cluster.rank;
  plan.warnings = std::move(cluster.warnings);
  plan.topology = flags.topology.value_or(Topology::kMesh);
  plan.protocol = flags.protocol.value_or(Protocol::kTcp);
  plan.job_id = request.job_id.value_or(cluster.job_id);
  if (plan.protocol == Protocol::kIpc && cluster.places.size() > 1 &&
      plan.topology != Topology::kAlone) {
    return failure(Code::kInvalid,
                   "--protocol ipc cannot reach the other hosts of the job; use --protocol tcp");
  }

  DIVISI_TRY(const auto spec, read_spec(request, cluster, plan));
  DIVISI_TRY(auto tasks, make_job_tasks(cluster, spec, {flags.workers, flags.ports}));
  const auto rank = static_cast<std::size_t>(cluster.rank);
  const JobTask& own = tasks[rank];
  const TaskSpec entry = spec.empty() ? TaskSpec() : spec[rank];

  plan.workers = own.workers;
  plan.ports = own.ports;
  plan.node_ids = {own.node_id};
  plan.address = entry.address ? *entry.address : flags.address.value_or(own.address);
  plan.labels = entry.labels ? *entry.labels : flags.labels.value_or(std::set<std::string>());
  if (plan.address != cluster.places[rank].host) {
    plan.warnings.push_back(fmt::format(
        "address {} is not the name {} that the node list has for this task; the others dial {}",
        plan.address, cluster.places[rank].host, own.address));
  }
  Flags id_flags = flags;
  if (entry.node_id) id_flags.node_ids.reset();
  if (const Status status = pad(id_flags, plan); !status.ok()) return failure(status);

  // A spec that says who dials whom has said all there is to say between the tasks.
  const bool spec_links =
      std::ranges::any_of(spec, [](const TaskSpec& task) { return task.attach_to.has_value(); });
  const Topology links = spec_links && !flags.topology ? Topology::kAlone : plan.topology;
  if (own.attach_to) {
    plan.attach_to = *own.attach_to;
  } else if (flags.attach_to) {
    plan.attach_to = *flags.attach_to;
  } else {
    plan.attach_to = topology_attach_to(tasks, cluster.rank, links);
  }
  for (const JobTask& task : tasks) plan.job_nodes += task.workers;
  if (!flags.attach_to && !flags.node_ids) {
    plan.job_peers = peers_in_job(tasks, cluster.rank, plan.attach_to, links);
    // A spec has one entry a task: it cannot speak of tasks that come later.
    if (cluster.platform == Platform::kKubernetes && spec.empty()) {
      plan.job_links.topology = plan.topology;
      plan.job_links.rank = cluster.rank;
      plan.job_links.ports = plan.ports;
      for (Place& place : cluster.places) plan.job_links.hosts.push_back(std::move(place.host));
    }
  }
  return plan;
}

Result<LaunchPlan> platform_plan(const Flags& flags, const LaunchRequest& request,
                                 const Environment& environment) {
  DIVISI_TRY(const Platform platform, choose_platform(request, environment));
  switch (platform) {
    case Platform::kNone: break;
    case Platform::kKubernetes: {
      DIVISI_TRY(Cluster cluster, read_kubernetes(environment));
      return cluster_plan(flags, request, std::move(cluster));
    }
    case Platform::kSlurm: {
      DIVISI_TRY(Cluster cluster, read_slurm(environment));
      return cluster_plan(flags, request, std::move(cluster));
    }
  }
  return local_plan(flags, request, environment);
}

}  // namespace

Result<LaunchPlan> make_plan(const LaunchRequest& request, const Environment& environment) {
  DIVISI_TRY(const Flags flags, parse_flags(request));
  return platform_plan(flags, request, environment);
}

}  // namespace divisi::launch
