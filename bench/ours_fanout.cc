// Ours for bench_fanout: a star over ipc, one event name.
#include "fanout.h"
#include "ours_node.h"

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <span>

namespace divisi::bench {
namespace {

constexpr std::chrono::seconds kDeadline{30};
constexpr int kHubId = 0;

class Hub final : public FanoutHub {
 public:
  explicit Hub(const std::string& address) : node_({.id = kHubId, .run = address}) {
    node_.router().ready();
  }

  void wait_for_leaves(int count) override {
    if (!node_.router().wait_for_peers(static_cast<std::size_t>(count), kDeadline)) {
      fail("a leaf is missing");
    }
  }

  void send(std::uint64_t number) override {
    std::memcpy(message_.data(), &number, sizeof number);
    node_.router().emit("m", std::span<const std::byte>(message_));
  }

 private:
  std::array<std::byte, kFanoutBytes> message_{};
  OursNode node_;
};

class Leaf final : public FanoutLeaf {
 public:
  Leaf(int index, const std::string& address)
      : node_({.id = kHubId + 1 + index, .run = address, .dial = {kHubId}}) {}

  void listen(Sink sink) override {
    on_event_ =
        node_.router().on("m", [this, sink = std::move(sink)](std::span<const std::byte> body) {
          std::uint64_t number = 0;
          std::memcpy(&number, body.data(), sizeof number);
          if (!sink(number, body)) ended_.set_value();
        });
    node_.router().ready();
  }

  void run() override { ended_.get_future().wait(); }

  void decline() override {
    on_event_ = node_.router().on("x", [](std::span<const std::byte>) {});
    node_.router().ready();
  }

 private:
  std::promise<void> ended_;
  OursNode node_;
  divisi::Subscription on_event_;  // last: no callback after it is gone
};

}  // namespace

std::unique_ptr<FanoutHub> make_ours_hub(const std::string& address) {
  return std::make_unique<Hub>(address);
}

std::unique_ptr<FanoutLeaf> make_ours_leaf(int index, const std::string& address) {
  return std::make_unique<Leaf>(index, address);
}

}  // namespace divisi::bench
