// Ours: two nodes of a job and one event name, through the public API.
//
// Below kShareFrom the message is one bytes argument; from there on it is a number and a Buffer
// whose bytes are shared with the link, as a user would send weights. The listener is the sink's
// caller: there is no queue between it and the counting.
#include "divisi/buffer.h"
#include "endpoint.h"
#include "ours_node.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

namespace divisi::bench {
namespace {

constexpr std::size_t kShareFrom = 8 * 1024;
constexpr std::chrono::seconds kDeadline{30};
constexpr int kServerId = 0;
constexpr int kClientId = 1;

class Ours final : public Endpoint {
 public:
  Ours(bool tcp, Side side, std::size_t size, const std::string& address)
      : small_(std::min(size, kShareFrom), std::byte{0x5a}),
        large_(size >= kShareFrom ? size : 0),
        node_({.id = side == Side::kServer ? kServerId : kClientId,
               .tcp = tcp,
               .run = address,
               .dial = side == Side::kServer ? std::vector<int>{} : std::vector{kServerId}}) {
    if (large_.empty()) {
      on_m_ = node_.router().on("m", [this](std::span<const std::byte> body) {
        std::uint64_t number = 0;
        std::memcpy(&number, body.data(), sizeof number);
        arrived(number, body);
      });
    } else {
      std::memset(large_.mutable_data(), 0x5a, large_.size());
      on_m_ = node_.router().on(
          "m", [this](std::uint64_t number, const Buffer& body) { arrived(number, body.bytes()); });
    }
    node_.router().ready();
    if (!node_.router().wait_for_peers(1, kDeadline)) fail("no peer");
  }

  void send(std::uint64_t number) override {
    if (large_.empty()) {
      std::memcpy(small_.data(), &number, sizeof number);
      node_.router().emit("m", std::span<const std::byte>(small_));
    } else {
      node_.router().emit("m", number, large_);
    }
  }

  void listen(Sink sink) override {
    std::lock_guard lock(mutex_);
    sink_ = std::move(sink);
    done_ = false;
    listening_.store(true, std::memory_order_release);
  }

  void run() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return done_; });
  }

 private:
  void arrived(std::uint64_t number, Bytes body) {
    // Pairs with the store in listen(): sink_ was written by another thread before.
    if (!listening_.load(std::memory_order_acquire) || sink_(number, body)) return;
    listening_.store(false, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    done_ = true;
    ended_.notify_one();
  }

  std::vector<std::byte> small_;
  Buffer large_;
  Sink sink_;
  std::atomic<bool> listening_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;  // guarded by mutex_
  OursNode node_;      // last: no callback after it is gone
  divisi::Subscription on_m_;
};

}  // namespace

std::unique_ptr<Endpoint> make_ours(bool tcp, Side side, std::size_t size,
                                    const std::string& address) {
  return std::make_unique<Ours>(tcp, side, size, address);
}

}  // namespace divisi::bench
