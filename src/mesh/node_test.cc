#include "mesh/node.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "divisi/event.h"

namespace divisi::mesh {
namespace {

using namespace std::chrono_literals;

// A node with a loop to listen on, over real sockets.
class TestNode {
 public:
  TestNode(int id, std::string listen, std::vector<std::string> dial, NodeOptions options = {}) {
    options.self.node = id;
    options.listen = std::move(listen);
    options.dial = std::move(dial);
    auto started = Node::start(*reactor_, std::move(options), {});
    if (!started) throw std::runtime_error(started.error().message());
    node_ = *std::move(started);
  }
  ~TestNode() { node_->close(5s); }

  Node* operator->() { return node_.get(); }
  EventLoop& loop() { return loop_; }

  template <class F>
  void on(const std::string& name, F&& fn) {
    loop_.on(name, std::forward<F>(fn));
    node_->subscribe(name, name, loop_.core());
  }
  template <class... A>
  Status emit(const std::string& name, const A&... args) {
    PackScratch scratch;
    return node_->send(name, pack_args(scratch, args...), {});
  }

 private:
  std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
  EventLoop loop_{"test"};
  std::unique_ptr<Node> node_;
};

class Counter {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool reaches(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return count_ >= n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

std::string ipc_name() {
  static std::atomic<int> n{0};
  return "ipc://@divisi_test_" + std::to_string(::getpid()) + "_" + std::to_string(n++);
}

TEST(NodeTest, EventsArriveCompleteAndInOrder) {
  for (const std::string scheme : {"ipc", "tcp"}) {
    TestNode a(0, scheme == "ipc" ? ipc_name() : "tcp://127.0.0.1:0", {});
    TestNode b(1, "", {a->address()});
    ASSERT_TRUE(b->join().ok());
    Counter seen;
    std::vector<int> values;
    a.on("n", [&](int value, const std::string&) {
      values.push_back(value);
      seen.add();
    });
    for (int i = 0; i < 100000; ++i) ASSERT_TRUE(b.emit("n", i, std::string(64, 'x')).ok());
    ASSERT_TRUE(seen.reaches(100000));
    for (int i = 0; i < 100000; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i);
  }
}

TEST(NodeTest, LargeMessagesArriveWhole) {
  TestNode a(0, ipc_name(), {});
  TestNode b(1, "", {a->address()});
  ASSERT_TRUE(b->join().ok());
  Counter seen;
  std::vector<std::size_t> sizes{0, 1, 8191, 8192, 65536, 262144, 262145, 1 << 20, 10 << 20};
  std::atomic<int> wrong{0};
  a.on("n", [&](std::size_t index, const Buffer& bytes) {
    if (bytes.size() != sizes[index]) ++wrong;
    for (std::size_t i = 0; i < bytes.size(); i += 997) {
      if (bytes.data()[i] != static_cast<std::byte>(i * 7 + index)) ++wrong;
    }
    seen.add();
  });
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    Buffer bytes(sizes[k]);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes.mutable_data()[i] = static_cast<std::byte>(i * 7 + k);
    }
    ASSERT_TRUE(b.emit("n", k, bytes).ok());
  }
  ASSERT_TRUE(seen.reaches(static_cast<int>(sizes.size())));
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace divisi::mesh
