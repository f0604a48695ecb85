#include "server/first/ddp_group.h"

#include "server/first/batch.h"
#include "server/first/pod_names.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

namespace divisi::server::first {
namespace {

constexpr int kLastPort = 65535;

const Worker* find_rank(const WorkerList& present, int start_rank) {
  const std::string wanted = std::to_string(start_rank);
  const auto is_it = [&](const Worker* each) { return variable_of(*each, "START_RANK") == wanted; };
  const auto found = std::ranges::find_if(present, is_it);
  return found == present.end() ? nullptr : *found;
}

struct Seat {
  std::string name{};
  std::string made_for{};
  bool present = false;
};

Seat seat_of(const Job& job, std::string_view aggregator_uid, int start_rank,
             const WorkerList& present, std::set<std::string>& taken) {
  if (const Worker* found = find_rank(present, start_rank)) return {found->pod.name, {}, true};
  for (int salt = 0;; ++salt) {
    std::string made_for = fmt::format("{}/{}/{}", aggregator_uid, start_rank, salt);
    std::string name =
        dijob::first::random_pod_name(job.name, Role::kDdpLearner, name_seed(made_for));
    if (taken.insert(name).second) return {std::move(name), std::move(made_for), false};
  }
}

}  // namespace

std::vector<GroupPod> missing_pods(const Job& job, const GroupWish& wish, const WorkerList& present,
                                   std::string_view server_url) {
  const std::string uid(wish.aggregator.string_at({"metadata", "uid"}));
  std::set<std::string> taken;
  dijob::first::PodWish pod;
  pod.role = Role::kDdpLearner;
  pod.pod_template = job.find_template(Role::kDdpLearner);
  pod.aggregator_name = wish.aggregator.string_at({"metadata", "name"});
  pod.aggregator_uid = uid;
  pod.coordinator_uid = wish.coordinator_uid;
  dijob::first::DdpPlace place;
  for (const int gpus : wish.split) place.start_rank += gpus;
  place.world_size = std::exchange(place.start_rank, 0);
  place.several = wish.split.size() > 1;

  std::vector<GroupPod> pods;
  std::string master;
  for (const int gpus : wish.split) {
    const Seat seat = seat_of(job, uid, place.start_rank, present, taken);
    place.gpus = gpus;
    place.master = master;
    if (!seat.present) {
      pod.name = seat.name;
      pod.resources = wish.resources;
      pod.resources[std::string(dijob::first::kGpu)] = json::Quantity(gpus);
      pod.ddp = place;
      pods.push_back({dijob::first::make_pod(job, pod, server_url), seat.made_for});
    }
    if (master.empty()) master = seat.name;
    place.start_rank += gpus;
  }
  return pods;
}

void create_group(PodWriter& writer, std::vector<GroupPod> pods, std::function<void(Status)> done) {
  const auto shared = std::make_shared<std::vector<GroupPod>>(std::move(pods));
  run_batch(
      shared->size(), kWidth,
      [&writer, shared](std::size_t index, std::function<void(Status)> ended) {
        GroupPod& one = (*shared)[index];
        writer.create(std::move(one.pod), one.made_for,
                      [ended = std::move(ended)](const Result<json::Value>& made) {
                        ended(made ? Status() : made.error());
                      });
      },
      std::move(done));
}

Status check_ports(const Job& job, int gpus) {
  const json::Value* spec = job.find_template(Role::kDdpLearner)->find("spec");
  const int port = spec == nullptr ? dijob::first::default_port(Role::kDdpLearner)
                                   : dijob::first::main_port(*spec, Role::kDdpLearner);
  if (port + gpus - 1 <= kLastPort) return {};
  return make_status(Code::kInvalid,
                     "learners.gpus is {}: with the port {} of the learner template the last rank "
                     "would listen on {}, and ports end at {}",
                     gpus, port, port + gpus - 1, kLastPort);
}

}  // namespace divisi::server::first
