// Where an event goes, and what a full queue does to it.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace divisi {

// What `emit` does when the queue towards a peer is full. Chosen per emit, by name; an emit that
// does not choose has ParallelOptions::send_policy.
enum class Policy {
  kBlock,       // wait (up to send_timeout), lose nothing: the default
  kError,       // throw Error(kWouldBlock) at once
  kDropOldest,  // replace the oldest unsent event of the same name; counted
  kLatestOnly,  // keep only the newest unsent event of the same name; counted
};

// Who receives a remote event. Default: every linked peer that listens.
struct Target {
  // What the peers are chosen by.
  enum class Kind {
    kAll,    // every peer that listens
    kNode,   // one node, by its id
    kLabel,  // those with a label that matches the pattern: "distributed", "node.3", what the
             // launcher gave them and, while their task runs, "async" and those of StartOptions
    kRole,   // those that play the role `pattern`
  };
  Kind kind = Kind::kAll;    // which of the following count
  int node = -1;             // kNode: its id
  std::string pattern = {};  // label glob or role name
  bool one_of = false;       // exactly one matching listening peer, in turn (a work queue)

  // Short forms:
  static Target all() { return {}; }
  static Target to_node(int id) { return {Kind::kNode, id, {}, false}; }
  static Target to_label(std::string glob) { return {Kind::kLabel, -1, std::move(glob), false}; }
  static Target to_role(std::string role) { return {Kind::kRole, -1, std::move(role), false}; }
  static Target one_of_label(std::string glob) { return {Kind::kLabel, -1, std::move(glob), true}; }
  static Target one_of_role(std::string role) { return {Kind::kRole, -1, std::move(role), true}; }
};

// Both, for an emit of the router.
struct SendOptions {
  Target to = {};                     // default: every peer that listens
  std::optional<Policy> policy = {};  // default: the runner's send_policy
};

}  // namespace divisi
