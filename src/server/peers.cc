#include "server/peers.h"

#include "server/job_id.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace divisi::server {
namespace {

// Ranks come from annotations that anybody may write. No job has so many: beyond is no rank.
constexpr int kMaxRanks = 100'000;

std::vector<const dijob::Pod*> peers_by_rank(const PeersOf& of) {
  const std::int64_t generation = current_generation(of.object);
  std::vector<const dijob::Pod*> peers;
  for (const dijob::Pod& pod : of.pods) {
    const bool ended = pod.phase == "Succeeded" || pod.phase == "Failed";
    const bool earlier =
        of.job.form == dijob::Form::kTemplate && pod.generation && *pod.generation != generation;
    const bool ranked = pod.has_slot && pod.slot.rank >= 0 && pod.slot.rank < kMaxRanks;
    if (pod.terminating || ended || earlier || !ranked) continue;
    peers.push_back(&pod);
  }
  std::ranges::sort(peers, [](const dijob::Pod* a, const dijob::Pod* b) {
    return std::tie(a->slot.rank, a->name) < std::tie(b->slot.rank, b->name);
  });
  return peers;
}

// A gang knows its own size; of tasks the job says it, because pods that survive a resize keep the
// annotation they were made with.
std::int64_t wanted_size(const PeersOf& of, const std::vector<const dijob::Pod*>& peers) {
  if (of.job.form == dijob::Form::kTasks) {
    std::int64_t sum = 0;
    for (const dijob::Task& task : of.job.tasks) sum += task.replicas;
    return sum;
  }
  std::int64_t size = 0;
  for (const dijob::Pod* pod : peers)
    size = std::max<std::int64_t>(size, pod->replicas.value_or(0));
  return size;
}

}  // namespace

json::Value peer_addresses(const PeersOf& of) {
  const auto peers = peers_by_rank(of);
  const bool any = std::ranges::any_of(peers, [](const auto* pod) { return !pod->ip.empty(); });
  if (!any) return {};
  // After a job has shrunk its ranks have holes, so the last may lie beyond its size.
  const std::int64_t size = std::max<std::int64_t>(
      peers.back()->slot.rank + 1, std::min<std::int64_t>(wanted_size(of, peers), kMaxRanks));
  json::Array addresses(static_cast<std::size_t>(size), json::Value(""));
  for (const dijob::Pod* pod : peers) {
    if (pod->ip.empty()) continue;
    const bool v6 = pod->ip.find(':') != std::string::npos;
    addresses[static_cast<std::size_t>(pod->slot.rank)] =
        fmt::format("{}{}{}:{}", v6 ? "[" : "", pod->ip, v6 ? "]" : "", pod->port);
  }
  return addresses;
}

json::Value peer_members(const PeersOf& of, std::string_view service_domain) {
  const std::string service = dijob::service_name(of.job);
  json::Array members;
  for (const dijob::Pod* pod : peers_by_rank(of)) {
    json::Value member;
    member["rank"] = pod->slot.rank;
    member["task"] = pod->slot.task;
    member["index"] = pod->slot.index;
    member["pod"] = pod->name;
    member["host"] = fmt::format("{}.{}.{}.{}", pod->name, service, of.job.space, service_domain);
    member["ip"] = pod->ip;
    member["port"] = pod->port;
    member["ready"] = pod->ready;
    members.push_back(std::move(member));
  }
  json::Value data;
  data["members"] = std::move(members);
  return data;
}

}  // namespace divisi::server
