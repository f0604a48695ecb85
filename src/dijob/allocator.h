// allocate(): which replica of which job runs on which node. Pure, and the same for the same input.
//
// Jobs of high priority come before those of normal, older before younger. The smallest gang of a
// job has all its places or none. What is placed stays where it is while that is possible, since
// every move costs a restart. A job that waits takes the extra replicas of those behind it, never
// the smallest gang of a job that has started. While a job waits for which the cluster is large
// enough, nobody behind it starts and nobody grows: or a large job would wait for ever.
//
// Pods leave in their own time. A place that somebody else's pod still fills is planned for, and
// given when it is empty.
#pragma once

#include "dijob/node.h"

#include <cstddef>
#include <string>
#include <vector>

namespace divisi::dijob {

// Replicas that are alike: of one task.
struct Kind {
  Amounts needs{};
  json::Value pod_spec{};  // where they may run
};

struct Replica {
  int rank = 0;
  std::size_t kind = 0;
  bool required = true;  // of the smallest gang
};

// A pod that exists on a node, whatever it is allocated now.
struct HeldPlace {
  int rank = -1;
  std::string node{};
  Amounts takes{};
};

struct Demand {
  std::string key{};  // "space/name"
  bool high = false;
  std::string created{};  // RFC 3339
  bool gapless = false;   // ranks are 0 to n-1: of a template form
  std::vector<Kind> kinds{};
  std::vector<Replica> replicas{};   // by rank
  std::vector<std::string> nodes{};  // of each rank so far; "" has none
  std::vector<HeldPlace> held{};
};

struct Placement {
  std::vector<std::string> nodes{};  // of each rank; "" has none. Empty: the job must wait
  std::size_t placed = 0;
  std::string message{};  // what is placed, or why not, with numbers
};

// In the order of `demands`. `nodes`: their free amounts without the pods of those jobs.
std::vector<Placement> allocate(const std::vector<Demand>& demands, std::vector<Node> nodes);

}  // namespace divisi::dijob
