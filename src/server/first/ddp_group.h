// The DDP learners behind an aggregator: which ranks each pod holds, and how they are made.
#pragma once

#include "dijob/amounts.h"
#include "server/first/pod_writer.h"
#include "server/first/source.h"
#include "server/first/team.h"

#include <functional>
#include <string>
#include <vector>

namespace divisi::server::first {

struct GroupWish {
  json::Value aggregator{};    // the pod, as the cluster has it
  std::vector<int> split{};    // the GPUs of each pod
  dijob::Amounts resources{};  // of each pod, beside its GPUs
  std::string coordinator_uid{};
};

// The pods of the group that `present` lacks. Their names follow from the uid of the aggregator and
// their first rank: whoever makes the group makes the same pods.
struct GroupPod {
  json::Value pod{};
  std::string made_for{};
};
std::vector<GroupPod> missing_pods(const Job& job, const GroupWish& wish, const WorkerList& present,
                                   std::string_view server_url);

// Creates them. A failure leaves those that could be created.
void create_group(PodWriter& writer, std::vector<GroupPod> pods, std::function<void(Status)> done);

// Whether all ranks of the group have ports: kInvalid otherwise.
Status check_ports(const Job& job, int gpus);

}  // namespace divisi::server::first
