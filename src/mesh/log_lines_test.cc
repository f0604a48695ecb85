// What the log says about peers, strangers and traced events.
#include "base/log.h"
#include "mesh/handshake.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/raw_socket.h"
#include "mesh/testing/test_node.h"
#include "mesh/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

class LogLinesTest : public ::testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::kDebug); }
  void TearDown() override { log::set_level(log::Level::kInfo); }

  static std::string fresh() { return all_media().front().fresh_address(); }

  template <class Action>
  static std::string said_during(Action action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogLinesTest, AStrangerIsNotTakenForNodeZero) {
  TestNode a(0, fresh(), {});
  const std::string said = said_during([&] {
    RawSocket browser(a->address());
    browser.write("GET / HTTP/1.1\r\n\r\n");
    browser.read_to_end();
    a.close(1ms);  // after what the loop is just doing
  });
  EXPECT_THAT(said, HasSubstr("an incoming connection was refused: the peer does not speak"));
  EXPECT_THAT(said, Not(HasSubstr("node 0")));
}

TEST_F(LogLinesTest, AGreetingThatStallsOrBreaksIsLoggedOncePerSecond) {
  NodeOptions options;
  options.handshake_timeout = 50ms;
  TestNode a(0, fresh(), {}, options);
  const std::string stalled = said_during([&] {
    RawSocket(a->address()).read_to_end();
    a.close(1ms);
  });
  EXPECT_THAT(stalled, HasSubstr("closed during the greeting: the peer did not finish"));

  TestNode b(1, fresh(), {});
  FrameHeader header;
  header.kind = Kind::kHello;
  header.length = 0x7fffffff;
  const auto magic = preamble();
  std::vector<std::byte> huge(magic.begin(), magic.end());
  huge.resize(huge.size() + kHeaderBytes);
  write_header(huge.data() + kPreambleBytes, header);
  const std::string broken = said_during([&] {
    for (int i = 0; i < 20; ++i) {
      RawSocket stranger(b->address());
      stranger.write(huge);
      stranger.read_to_end();
    }
    b.close(1ms);
  });
  EXPECT_THAT(broken, HasSubstr("closed during the greeting: oversized frame"));
  const std::regex line("during the greeting");
  const auto lines = std::distance(std::sregex_iterator(broken.begin(), broken.end(), line), {});
  EXPECT_LT(lines, 20) << broken;
}

TEST_F(LogLinesTest, ARefusalThatRepeatsIsLoggedOnceByEachSide) {
  NodeOptions options;
  options.heartbeat = 100ms;
  options.lost_after = 300ms;
  options.join_timeout = 60s;
  const std::string said = said_during([&] {
    TestNode a(0, fresh(), {}, options);
    TestNode twin(0, "", {a->address()}, options);
    EXPECT_FALSE(twin->join().ok());
    twin.close(1ms);
    a.close(1ms);
  });
  const std::regex line("warning link to [^\n]* failed: [^\n]*taken twice");
  EXPECT_EQ(std::distance(std::sregex_iterator(said.begin(), said.end(), line), {}), 2) << said;
}

TEST_F(LogLinesTest, StrangersTogetherGetOneLinePerSecond) {
  NodeOptions options;
  options.self.job = "mine";
  options.secret = "the secret of this job";
  TestNode a(0, fresh(), {}, options);
  const auto begin = std::chrono::steady_clock::now();
  const std::string said = said_during([&] {
    for (int i = 0; i < 300; ++i) {
      Identity claimed;
      claimed.job = i % 2 == 0 ? "mine" : "guess " + std::to_string(i);
      claimed.node = i + 100;
      claimed.incarnation = static_cast<std::uint64_t>(i) + 1;
      Handshake greeting(Handshake::Role::kDialler, claimed, i % 4 == 0 ? "guess" : "",
                         [](const Identity&) { return Handshake::Verdict(); });
      RawSocket stranger(a->address());
      stranger.write(greeting.take_output());
      // One with a secret gets a greeting back; it answers with noise.
      if (i % 4 == 0) stranger.write(std::string(64, '\xff'));
      stranger.read_to_end();
    }
    std::vector<std::unique_ptr<RawSocket>> silent;
    for (int i = 0; i < 300; ++i) silent.push_back(std::make_unique<RawSocket>(a->address()));
    silent.front()->read_to_end();
    a.close(1ms);
  });
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin);
  const auto lines = std::count(said.begin(), said.end(), '\n');
  EXPECT_GE(lines, 1);
  EXPECT_LE(lines, seconds.count() + 2) << said;
}

TEST_F(LogLinesTest, ASuccessorIsNamedAsTheReason) {
  TestNode a(0, fresh(), {});
  auto first = std::make_unique<TestNode>(1, "", std::vector{a->address()});
  link(a, *first);
  const std::string said = said_during([&] {
    first->kill();
    TestNode second(1, "", {a->address()});
    EXPECT_TRUE(second->join().ok());
    EXPECT_TRUE(a.hears(PeerChange::kBack, 1));
  });
  EXPECT_THAT(said, HasSubstr("lost node 1: a new process has taken its place"));
  EXPECT_THAT(said, Not(HasSubstr("no sign of life")));
}

TEST_F(LogLinesTest, AnAddressIsShownOnlyIfThereIsOne) {
  TestNode a(0, fresh(), {});
  std::unique_ptr<TestNode> b;
  const std::string said = said_during([&] {
    b = std::make_unique<TestNode>(1, "", std::vector{a->address()});
    link(a, *b);
    b->close(1s);
  });
  EXPECT_THAT(said, HasSubstr("linked with node 1\n"));
  EXPECT_THAT(said, HasSubstr("linked with node 0 (" + a->address() + ")"));
}

TEST_F(LogLinesTest, ATracedEventIsLoggedOnBothSides) {
  NodeOptions tracing;
  tracing.trace = true;
  Inbox<int> seen;
  TestNode a(0, fresh(), {}, tracing);
  TestNode b(1, "", {a->address()}, tracing);
  link(a, b);
  b.on("n", [&](int n) { seen.add(n); });
  const std::string said = said_during([&] {
    ASSERT_TRUE(a.emit("n", 1).ok());
    ASSERT_TRUE(a.emit("n", 2).ok());
    ASSERT_TRUE(seen.reaches(2));
  });
  const std::regex emitted(
      "trace emit event=n id=([0-9a-f]{16}) peer=1 bytes=(\\d+) waited_us=\\d+");
  std::vector<std::string> ids;
  std::string bytes;
  for (std::sregex_iterator at(said.begin(), said.end(), emitted), end; at != end; ++at) {
    ids.push_back((*at)[1]);
    bytes = (*at)[2];
  }
  ASSERT_EQ(ids.size(), 2u) << said;
  EXPECT_NE(ids[0], ids[1]);
  for (const auto& id : ids) {
    EXPECT_THAT(said, HasSubstr("trace deliver event=n id=" + id + " peer=0 bytes=" + bytes +
                                " queued_us="));
  }
}

}  // namespace
}  // namespace divisi::mesh::testing
