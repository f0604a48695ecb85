// Dialer: one address that this node keeps a link to. Loop only.
#pragma once

#include "io/reactor.h"
#include "mesh/link.h"
#include "mesh/node.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace divisi::mesh {

struct Node::Dialer {
  explicit Dialer(io::Address to) : address(std::move(to)) {}

  const io::Address address;
  std::optional<io::Address> at;       // where that is at present, if somebody said so
  bool by_name = true;                 // which of the two the next attempt goes to
  std::unique_ptr<io::Timer> pending;  // a dial under way, or the pause before the next
  std::chrono::milliseconds pause{0};  // doubles up to a second until a link prospers
  bool joined = false;                 // was linked once, or needs no link
  bool unneeded = false;               // the address is our own, or its node left
  bool listed = false;                 // the job says that its node is there: it may come back
  bool lasting = false;                // another run may follow there: dialled after a goodbye, too
  std::weak_ptr<Link> link;            // the link it led to
  io::TimePoint duplicate_since{};     // when a peer first said that our id is taken
  std::string refusal;                 // why the last attempt failed, if it was refused
};

}  // namespace divisi::mesh
