#include "mesh/testing/test_node.h"

#include "mesh/testing/medium.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace divisi::mesh::testing {

namespace {

using namespace std::chrono_literals;

std::string fresh_ipc() {
  static std::atomic<int> n{0};
  return fmt::format("ipc://@divisi_mesh_test_{}_{}", ::getpid(), n++);
}

std::string fresh_tcp() {
  return "tcp://127.0.0.1:0";
}

}  // namespace

std::vector<Medium> all_media() {
  return {{"ipc", fresh_ipc}, {"tcp", fresh_tcp}};
}

bool eventually(const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

void Door::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void Door::pass() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return open_; });
}

TestNode::TestNode(int id, std::string listen, std::vector<std::string> dial, NodeOptions options) {
  options.self.node = id;
  options.listen = std::move(listen);
  options.dial = std::move(dial);
  auto started = Node::start(
      *reactor_, std::move(options),
      [this](PeerChange change, const PeerInfo& peer) { changes_.add({change, peer.node}); });
  if (!started) throw std::runtime_error(started.error().message());
  node_ = *std::move(started);
}

TestNode::~TestNode() {
  if (node_) node_->close(5s);
}

bool TestNode::hears(PeerChange change, int peer) {
  return eventually([&] {
    const auto all = changes_.values();
    return std::find(all.begin(), all.end(), std::pair(change, peer)) != all.end();
  });
}

PeerStats TestNode::stats_of(int peer) const {
  for (const PeerStats& row : node_->stats().peers) {
    if (row.node == peer) return row;
  }
  return {};
}

bool TestNode::linked_with(int peer) const {
  const auto peers = node_->peers();
  return std::any_of(peers.begin(), peers.end(),
                     [&](const PeerInfo& info) { return info.node == peer && info.connected; });
}

void link(TestNode& a, TestNode& b) {
  for (TestNode* node : {&a, &b}) {
    if (const Status joined = (*node)->join(); !joined.ok()) {
      throw std::runtime_error(joined.message());
    }
  }
  if (!eventually([&] { return a.linked_with(b->id()) && b.linked_with(a->id()); })) {
    throw std::runtime_error("the nodes were not linked");
  }
}

}  // namespace divisi::mesh::testing
