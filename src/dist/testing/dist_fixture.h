// DistFixture: masters, slaves and raw requests on one real loop, with short durations.
#pragma once

#include "base/testing/wait_until.h"
#include "dist/master.h"
#include "dist/peer_client.h"
#include "dist/slave.h"
#include "http/testing/loop_fixture.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace divisi::dist::testing {

using divisi::testing::wait_until;
using http::testing::get;

inline io::Address free_port() {
  return *io::Address::parse("127.0.0.1:0");
}

inline RetryOptions short_retry() {
  return {.retries = 1,
          .pause = std::chrono::milliseconds(20),
          .connect_timeout = std::chrono::seconds(5),
          .answer_timeout = std::chrono::seconds(20)};
}

// A handler made of a function; `hold` waits until release(), stop() or master_gone().
class FakeHandler final : public TaskHandler {
 public:
  using Run = std::function<TaskOutcome(FakeHandler&, const json::Value&)>;
  explicit FakeHandler(Run run) : run_(std::move(run)) {}

  TaskOutcome run(const json::Value& data) override { return run_(*this, data); }
  void stop() override {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  void master_gone() override {
    const std::scoped_lock lock(mutex_);
    stopped_ = false;
    ++farewells;
  }

  // From inside run().
  void hold() {
    std::unique_lock lock(mutex_);
    ++holding;
    changed_.wait(lock, [this] { return stopped_ || released_; });
  }
  void release() {
    const std::scoped_lock lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  std::atomic<int> holding{0};
  std::atomic<int> farewells{0};

 private:
  const Run run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;   // guarded by mutex_
  bool released_ = false;  // guarded by mutex_
};

// Completes "good" with its input, fails "bad", throws at "throw", waits at "hold".
inline std::shared_ptr<FakeHandler> ordinary_handler() {
  return std::make_shared<FakeHandler>([](FakeHandler& self, const json::Value& data) {
    const std::string_view name = data.string_at({"name"});
    if (name == "throw") throw std::runtime_error("broken on purpose");
    if (name == "hold") self.hold();
    if (name == "bad") return TaskOutcome{false, json::Object{{"message", "bad data"}}};
    return TaskOutcome{true, json::Object{{"name", std::string(name)}}};
  });
}

class DistFixture : public http::testing::LoopFixture {
 protected:
  ~DistFixture() override {
    on_loop([&] {
      master_.reset();
      slaves_.clear();
    });
  }

  static SlaveOptions slave_options() {
    SlaveOptions options;
    options.bind = free_port();
    options.heartbeat = std::chrono::milliseconds(200);
    options.retry = short_retry();
    return options;
  }

  static MasterOptions master_options() {
    MasterOptions options;
    options.bind = free_port();
    options.check = std::chrono::milliseconds(100);
    options.retry = short_retry();
    return options;
  }

  // Its URL.
  std::string start_slave(std::shared_ptr<TaskHandler> handler,
                          SlaveOptions options = slave_options()) {
    std::string url;
    on_loop([&] {
      auto slave = Slave::start(*reactor_, std::move(options), std::move(handler));
      ASSERT_TRUE(slave) << slave.error().message();
      slaves_.push_back(*std::move(slave));
      url = fmt::format("127.0.0.1:{}", slaves_.back()->address().port);
    });
    return url;
  }

  void start_master(MasterOptions options = master_options()) {
    on_loop([&] {
      auto master = Master::start(*reactor_, std::move(options));
      ASSERT_TRUE(master) << master.error().message();
      master_ = *std::move(master);
    });
  }

  Status connect(const std::string& url) {
    return on_loop_until<Status>([&](auto done) { master_->connect(url, json::Object{}, done); });
  }
  Status disconnect(const std::string& url) {
    return on_loop_until<Status>([&](auto done) { master_->disconnect(url, done); });
  }
  std::future<TaskReport> start_task(const std::string& url, json::Value data) {
    auto promise = std::make_shared<std::promise<TaskReport>>();
    on_loop([&] {
      master_->new_task(url, std::move(data), {},
                        [promise](TaskReport report) { promise->set_value(std::move(report)); });
    });
    return promise->get_future();
  }
  TaskReport task(const std::string& url, json::Value data) {
    return get(start_task(url, std::move(data)));
  }
  std::vector<std::string> listed() {
    std::vector<std::string> urls;
    on_loop([&] { urls = master_->slaves(); });
    return urls;
  }
  bool connected(std::size_t slave = 0) {
    bool is = false;
    on_loop([&] { is = slaves_[slave]->connected(); });
    return is;
  }

  // One request to any process; "Token: -" and "Channel: -" leave the header out.
  PeerReply ask(const std::string& url, const std::string& method, const std::string& target,
                const std::string& token, const std::string& body = "{}",
                const std::string& channel = "0") {
    http::Request request{method, target, {}, body};
    if (channel != "-") request.headers.add("Channel", channel);
    if (token != "-") request.headers.add("Token", token);
    use_client({.server = *parse_peer_url(url)});
    const auto answer = fetch(std::move(request));
    if (!answer) throw std::runtime_error(answer.error().message());
    return read_reply(*answer);
  }

  template <class T, class F>
  T on_loop_until(F&& start) {
    auto promise = std::make_shared<std::promise<T>>();
    on_loop([&] { start([promise](T value) { promise->set_value(std::move(value)); }); });
    return get(promise->get_future());
  }

  std::unique_ptr<Master> master_;
  std::vector<std::unique_ptr<Slave>> slaves_;
};

}  // namespace divisi::dist::testing
