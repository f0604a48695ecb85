// The real reactor: time, deferred work, streams, and the hand-over of the loop.
#include "io/reactor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace divisi::io {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kDeadline = 60s;

Address parse(const std::string& text) {
  return *Address::parse(text);
}

// A name of nobody else, as long as this process lives.
std::string fresh_ipc() {
  static int n = 0;
  return fmt::format("ipc://@divisi_reactor_test_{}_{}", ::getpid(), n++);
}

template <class T>
T get(std::future<T> future) {
  if (future.wait_for(kDeadline) != std::future_status::ready) {
    throw std::runtime_error("nothing came before the deadline");
  }
  return future.get();
}

class ReactorTest : public ::testing::Test {
 protected:
  // The two ends of a connection.
  struct Ends {
    std::unique_ptr<Listener> listener;
    std::shared_ptr<Stream> near, far;
  };
  Ends connect(const Address& where) {
    Ends ends;
    std::promise<std::shared_ptr<Stream>> accepted;
    auto listener = reactor_->listen(
        where, [&](std::shared_ptr<Stream> stream) { accepted.set_value(std::move(stream)); });
    EXPECT_TRUE(listener.has_value());
    ends.listener = *std::move(listener);
    ends.near = *dial(ends.listener->address(), 10s);
    ends.far = get(accepted.get_future());
    return ends;
  }

  Result<std::shared_ptr<Stream>> dial(const Address& where, Duration timeout) {
    std::promise<Result<std::shared_ptr<Stream>>> done;
    std::unique_ptr<Timer> handle;
    reactor_->run_on_loop([&] {
      handle = reactor_->dial(where, timeout, [&](Result<std::shared_ptr<Stream>> stream) {
        done.set_value(std::move(stream));
      });
    });
    auto result = get(done.get_future());
    reactor_->run_on_loop([&] { handle.reset(); });
    return result;
  }

  void close(Ends& ends) {
    reactor_->run_on_loop([&] {
      ends.near->close();
      ends.far->close();
    });
  }

  std::unique_ptr<Reactor> reactor_ = make_reactor();
};

TEST_F(ReactorTest, PostedWorkRunsInOrder) {
  std::vector<int> order;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) reactor_->post([&, i] { order.push_back(i); });
  reactor_->post([&] { done.set_value(); });
  get(done.get_future());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(ReactorTest, RunOnLoopReturnsWhenItIsDone) {
  bool ran = false;
  reactor_->run_on_loop([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST_F(ReactorTest, TimersRunInTheOrderOfTheirTimesUnlessForgotten) {
  std::vector<int> order;
  std::promise<void> done;
  std::vector<std::unique_ptr<Timer>> timers;
  reactor_->run_on_loop([&] {
    timers.push_back(reactor_->after(30ms, [&] { done.set_value(); }));
    timers.push_back(reactor_->after(20ms, [&] { order.push_back(2); }));
    timers.push_back(reactor_->after(0ms, [&] { order.push_back(0); }));
    timers.push_back(reactor_->after(10ms, [&] { order.push_back(1); }));
    auto forgotten = reactor_->after(5ms, [&] { order.push_back(99); });
    forgotten.reset();
  });
  get(done.get_future());
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  reactor_->run_on_loop([&] { timers.clear(); });
}

TEST_F(ReactorTest, ATimerMayForgetItselfAndStartAnother) {
  std::promise<void> done;
  std::unique_ptr<Timer> timer;
  int left = 5;
  std::function<void()> again = [&] {
    timer.reset();
    if (--left == 0) return done.set_value();
    timer = reactor_->after(1ms, again);
  };
  reactor_->run_on_loop([&] { timer = reactor_->after(1ms, again); });
  get(done.get_future());
}

TEST_F(ReactorTest, BytesTravelBothWaysAndTheEndIsSeen) {
  for (const std::string& where : {std::string("tcp://127.0.0.1:0"), fresh_ipc()}) {
    Ends ends = connect(parse(where));
    std::promise<std::string> all;
    std::string got;
    reactor_->run_on_loop([&] {
      ends.far->start_reading([&] {
        char bytes[1000];
        const iovec part{bytes, sizeof bytes};
        const ssize_t n = ends.far->read({&part, 1});
        if (n == -EAGAIN) return true;
        if (n <= 0) {
          all.set_value(got);
          return false;
        }
        got.append(bytes, static_cast<std::size_t>(n));
        return true;
      });
    });
    char hello[] = "hello ";
    char world[] = "world";
    const iovec parts[] = {{hello, 6}, {world, 5}};
    EXPECT_EQ(ends.near->write(parts), 11);
    reactor_->run_on_loop([&] { ends.near->shutdown_write(); });
    EXPECT_EQ(get(all.get_future()), "hello world");
    close(ends);
    EXPECT_LT(ends.near->write(parts), 0) << "a closed stream takes nothing";
  }
}

TEST_F(ReactorTest, AFullSocketSaysSoAndTellsWhenThereIsRoom) {
  // Of ipc, which is full until somebody reads: tcp may still move bytes to the other end.
  Ends ends = connect(parse(fresh_ipc()));
  std::vector<char> block(1 << 20, 'x');
  const iovec part{block.data(), block.size()};
  while (ends.near->write({&part, 1}) > 0) {
  }
  EXPECT_EQ(ends.near->write({&part, 1}), -EAGAIN);
  std::promise<void> writable;
  std::atomic<bool> told{false};
  reactor_->run_on_loop([&] {
    ends.near->wait_writable([&] {
      told = true;
      writable.set_value();
    });
  });
  reactor_->run_on_loop([] {});
  EXPECT_FALSE(told);
  reactor_->run_on_loop([&] {
    ends.far->start_reading([&] {
      std::vector<char> bytes(1 << 20);
      const iovec into{bytes.data(), bytes.size()};
      return ends.far->read({&into, 1}) > 0;
    });
  });
  get(writable.get_future());
  close(ends);
}

TEST_F(ReactorTest, NoCallbackRunsAfterClose) {
  Ends ends = connect(parse("tcp://127.0.0.1:0"));
  int calls = 0;
  reactor_->run_on_loop([&] {
    ends.far->start_reading([&] {
      ++calls;
      return true;
    });
    ends.far->close();
  });
  char byte = 'x';
  const iovec part{&byte, 1};
  (void)ends.near->write({&part, 1});
  for (int i = 0; i < 10; ++i) reactor_->run_on_loop([] {});
  EXPECT_EQ(calls, 0);
  close(ends);
}

TEST_F(ReactorTest, ADialThatFailsSaysWhereAndWhy) {
  const std::string where = fresh_ipc();
  const auto nobody = dial(parse(where), 5s);
  ASSERT_FALSE(nobody.has_value());
  EXPECT_EQ(nobody.error().code(), Code::kUnavailable);
  EXPECT_THAT(nobody.error().message(), HasSubstr("cannot reach " + where));
  const auto nowhere = dial(parse("tcp://no.such.host.invalid:1"), 20s);
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_THAT(nowhere.error().message(), HasSubstr("no.such.host.invalid"));
}

TEST_F(ReactorTest, AnAddressInUseCannotBeListenedOn) {
  const auto nothing = [](const std::shared_ptr<Stream>&) {};
  for (const std::string& where : {std::string("tcp://127.0.0.1:0"), fresh_ipc()}) {
    const auto first = reactor_->listen(parse(where), nothing);
    ASSERT_TRUE(first.has_value());
    const auto second = reactor_->listen((*first)->address(), nothing);
    ASSERT_FALSE(second.has_value());
    EXPECT_THAT(second.error().message(), HasSubstr("in use"));
  }
}

class SocketFile : public ReactorTest {
 protected:
  SocketFile() {
    char name[] = "/tmp/divisi_reactor_XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/socket";
  }
  ~SocketFile() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
  std::string path_;
};

TEST_F(SocketFile, IsRemovedWithItsListener) {
  {
    const auto listener = reactor_->listen(parse("ipc://" + path_), [](const auto&) {});
    ASSERT_TRUE(listener.has_value());
    EXPECT_TRUE(std::filesystem::exists(path_));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketFile, OfAKilledProcessIsReplaced) {
  const int dead = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path_.data(), path_.size());
  ASSERT_EQ(::bind(dead, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  ASSERT_EQ(::listen(dead, 1), 0);
  const auto taken = reactor_->listen(parse("ipc://" + path_), [](const auto&) {});
  ASSERT_FALSE(taken.has_value()) << "while it lives it keeps its name";
  EXPECT_THAT(taken.error().message(), HasSubstr("in use"));
  ::close(dead);
  const auto next = reactor_->listen(parse("ipc://" + path_), [](const auto&) {});
  EXPECT_TRUE(next.has_value()) << next.error().message();
}

TEST_F(SocketFile, ThatIsAnOrdinaryFileIsLeftAlone) {
  {
    const auto file = ::fopen(path_.c_str(), "w");
    ::fclose(file);
  }
  EXPECT_FALSE(reactor_->listen(parse("ipc://" + path_), [](const auto&) {}).has_value());
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

TEST_F(ReactorTest, HandedOffWorkThatBlocksHoldsUpNobody) {
  for (const bool heavy : {false, true}) {
    std::promise<void> inside;
    std::promise<void> leave;
    auto left = leave.get_future().share();
    std::promise<void> finished;
    std::atomic<int> runs{0};
    const auto work = [&] {
      ++runs;
      inside.set_value();
      left.wait();
      finished.set_value();
    };
    // Where no thread is free the work goes elsewhere: then try again.
    std::function<void()> hand = [&] {
      reactor_->hand_off(work, [&] { reactor_->post(hand); }, heavy);
    };
    reactor_->post(hand);
    get(inside.get_future());
    for (int i = 0; i < 10; ++i) reactor_->run_on_loop([] {});  // the loop goes on
    leave.set_value();
    get(finished.get_future());
    EXPECT_EQ(runs, 1);
  }
}

TEST_F(ReactorTest, AllThatIsHandedOffRunsOnceOneWayOrTheOther) {
  std::atomic<int> done{0};
  std::promise<void> all;
  constexpr int kCount = 2'000;
  const auto count = [&] {
    if (++done == kCount) all.set_value();
  };
  for (int i = 0; i < kCount; ++i) {
    reactor_->post([&, i] { reactor_->hand_off(count, count, i % 7 == 0); });
  }
  get(all.get_future());
  reactor_->run_on_loop([] {});
  EXPECT_EQ(done, kCount);
}

TEST_F(ReactorTest, ItEndsWithDialsListenersAndTimersUnderWay) {
  auto listener = reactor_->listen(parse("tcp://127.0.0.1:0"), [](const auto&) {});
  ASSERT_TRUE(listener.has_value());
  std::unique_ptr<Timer> dialling;
  std::unique_ptr<Timer> timer;
  reactor_->run_on_loop([&] {
    dialling = reactor_->dial((*listener)->address(), 10s, [](const auto&) {});
    timer = reactor_->after(1h, [] {});
  });
  reactor_->run_on_loop([&] {
    dialling.reset();
    timer.reset();
  });
  listener->reset();
  reactor_.reset();
}

}  // namespace
}  // namespace divisi::io
