// What the workers of a job learn of one another: addresses by rank, and the list of members.
//
// Pure functions of a job and its pods. Pods that terminate, have ended, or belong to an earlier
// gang of a template form are no peers.
#pragma once

#include "dijob/job.h"
#include "dijob/pod.h"
#include "json/value.h"

#include <string_view>
#include <vector>

namespace divisi::server {

struct PeersOf {
  const json::Value& object;  // the DIJob
  const dijob::Job& job;
  const std::vector<dijob::Pod>& pods;
};

// ["10.0.0.1:22270", "", ...]: one entry a rank, empty for a rank without an address yet; null when
// none has one.
json::Value peer_addresses(const PeersOf& of);

// {"members": [{"rank", "task", "index", "pod", "host", "ip", "port", "ready"}, ...]} by rank.
json::Value peer_members(const PeersOf& of, std::string_view service_domain);

}  // namespace divisi::server
