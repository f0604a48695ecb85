// WorkerConfig: everything one node has to know about itself, and plan_workers(), which makes
// the n configurations of a launcher out of the runner's parameters.
#pragma once

#include "base/status.h"
#include "divisi/delivery.h"
#include "runtime/topology.h"

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace divisi::runtime {

// What a worker runs.
struct EntryRef {
  std::string library;     // shared object to load first; empty: this program
  std::string name;        // a DIVISI_MAIN name, or an extern "C" symbol
  std::string where;       // file:line of the registration, where a name alone is ambiguous
  bool is_symbol = false;  // `libfoo.so:symbol`: int symbol(int argc, char** argv)

  // Of a front end in another language (front_end.h): its own bytes, or a module to be found.
  std::string foreign{};
  std::string module{};
  std::vector<std::string> search_path{};
};

constexpr int kUnlimitedRetries = -1;

// How this launcher stands in a DIJob, whose size may change while it runs. All launchers of the
// job listen on the same ports and number their workers by rank.
struct JobLinks {
  Topology topology = Topology::kAlone;  // of the ranks; alone: nobody is followed
  int rank = 0;
  std::vector<int> ports{};          // one a worker
  std::vector<std::string> hosts{};  // by rank, as far as known at the start
};

struct WorkerConfig {
  int node_id = 0;   // unique in the job
  int local_id = 0;  // 0..n_workers-1 in this launcher
  int n_workers = 1;
  Topology topology = Topology::kMesh;

  std::string listen;                  // own address; may be empty: listens nowhere
  std::vector<std::string> dial;       // workers of the same launcher, by the topology
  std::vector<std::string> attach_to;  // others, normalised; main waits for these links too
  std::vector<int> linked_nodes;       // node ids of the launcher that must be linked before main
  int expected_nodes = 0;              // whole job (k8s, slurm); 0: not known, not waited for
  JobLinks job_links;                  // to follow who comes and goes (job_follower.h)
  std::set<std::string> labels;

  std::string job_id;
  std::string secret;  // empty: no proof asked for
  bool allow_pickle = false;
  bool listen_on_loopback = false;  // with a tcp address, on 127.0.0.1 as well

  std::chrono::milliseconds join_timeout{60'000};  // from this worker's own start on
  std::chrono::milliseconds send_timeout{30'000};
  std::chrono::milliseconds startup_delay{0};  // local_id x startup_interval
  std::chrono::milliseconds finish_grace{5'000};
  std::uint64_t queue_bytes = 64ull << 20;    // per link
  std::uint64_t memory_bytes = 256ull << 20;  // all links together
  std::uint64_t max_message_bytes = 1ull << 30;
  Policy send_policy = Policy::kBlock;
  std::string codec = "native";
  bool relay = false;  // a hub that forwards
  bool finish_on_hub_lost = false;
  bool ignore_lost = false;  // worker_lost=ignore: events for lost peers fail nobody

  bool auto_recover = false;
  int max_retries = kUnlimitedRetries;
  int restarts = 0;  // how often the launcher has started this node again

  EntryRef entry;
  std::vector<std::string> args;

  std::string log_level = "info";
  bool log_json = false;
  bool trace = false;  // also with DIVISI_TRACE=1
};

// As bytes for the inherited descriptor. Read back only by the same libdivisi.
std::string encode(const WorkerConfig& config);
Result<WorkerConfig> decode_worker_config(std::string_view bytes);

// "DITASK_NODE_ID=3", "DITASK_LISTEN=...", ... for `ditask -- command` (spec 6.2). The secret is
// not among them: an environment is readable by every process of the same user.
std::vector<std::string> worker_environment(const WorkerConfig& config);

// The other way round, for a program started as `ditask -- program`, with the secret out of the
// file that DIVISI_SECRET_FILE names. kNotFound when DITASK_NODE_ID is not set.
Result<WorkerConfig> worker_config_from_environment();

// The runner's parameters (spec 3.1) that shape the workers.
struct PlanOptions {
  int n_parallel_workers = 1;
  Protocol protocol = Protocol::kIpc;
  Topology topology = Topology::kMesh;
  std::string address;                            // tcp: host to listen on; empty: detected
  std::vector<int> ports;                         // padded
  std::vector<int> node_ids;                      // padded
  std::vector<std::string> attach_to;             // with or without scheme
  std::chrono::milliseconds startup_interval{0};  // common.join_timeout begins after the last one
  // What every worker shares: labels, job id, secret, limits, entry, args, log level.
  // Addresses, ids and links in it are overwritten.
  WorkerConfig common;
};

struct Plan {
  std::vector<WorkerConfig> workers;
  std::vector<std::string> warnings;  // for the launcher to log, once
};

// Checks everything that can be known before a process is started (kInvalid, one line each).
// ipc workers of a launcher without attach_to get a random job id and secret if none was given
// (decision N5).
Result<Plan> plan_workers(const PlanOptions& options);

}  // namespace divisi::runtime
