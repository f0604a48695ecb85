// Who is refused, on every medium: other jobs, secrets and protocols, strangers, and nodes that
// meet themselves or each other twice. Whoever is refused is told why, and nobody else suffers.
#include "mesh/handshake.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/raw_socket.h"
#include "mesh/testing/recorder.h"
#include "mesh/testing/test_node.h"
#include "mesh/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RefusalConformance : public ::testing::TestWithParam<Medium> {
 protected:
  std::string fresh() { return GetParam().fresh_address(); }

  static NodeOptions job(std::string name, std::string secret) {
    NodeOptions options;
    options.self.job = std::move(name);
    options.secret = std::move(secret);
    return options;
  }

  // A third node can still join `a`.
  static void expect_healthy(TestNode& a, const NodeOptions& options) {
    TestNode friendly(77, "", {a->address()}, options);
    link(a, friendly);
    Inbox<int> seen;
    a.on("healthy", [&](int n) { seen.add(n); });
    ASSERT_TRUE(friendly.emit("healthy", 5).ok());
    EXPECT_TRUE(seen.reaches(1));
    friendly.close(std::chrono::duration_cast<std::chrono::milliseconds>(kDeadline));
  }
};
INSTANTIATE_TEST_SUITE_P(Media, RefusalConformance, ::testing::ValuesIn(all_media()),
                         [](const auto& item) { return std::string(item.param.name); });

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_P(RefusalConformance, AWrongSecretIsRefusedOnBothSides) {
  TestNode a(0, fresh(), {}, job("j", "right"));
  for (const char* secret : {"wrong", ""}) {
    TestNode b(1, "", {a->address()}, job("j", secret));
    const Status refused = b->join();
    EXPECT_THAT(refused.code(), AnyOf(Code::kUnauthorized, Code::kForbidden)) << secret;
    EXPECT_THAT(refused.message(), HasSubstr("secret"));
    EXPECT_THAT(refused.message(), HasSubstr(a->address()));
  }
  EXPECT_TRUE(a->peers().empty());
  expect_healthy(a, job("j", "right"));
}

TEST_P(RefusalConformance, AnotherJobIsRefused) {
  TestNode a(0, fresh(), {}, job("mine", "s"));
  TestNode b(1, "", {a->address()}, job("yours", "s"));
  const Status refused = b->join();
  EXPECT_THAT(refused.message(), HasSubstr("another job id (ours is 'yours'"));
  EXPECT_THAT(refused.message(), Not(HasSubstr("mine")));
  EXPECT_TRUE(a->peers().empty());
  expect_healthy(a, job("mine", "s"));
}

TEST_P(RefusalConformance, AnotherProtocolVersionIsToldBothNumbers) {
  TestNode a(0, fresh(), {});
  for (const int version : {1, 7}) {
    RawSocket other(a->address());
    other.write(preamble(static_cast<std::uint16_t>(version)));
    EXPECT_THAT(as_text(other.read_to_end()),
                HasSubstr("protocol version " + std::to_string(version) + " meets version 2"));
  }
  expect_healthy(a, {});
}

TEST_P(RefusalConformance, AServerOfAnotherProtocolIsNamed) {
  std::string address;
  const int listener = listen_like(fresh(), address);
  std::thread server([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    const std::string_view text = "SSH-2.0-OpenSSH_9.2p1 Debian\r\n";
    EXPECT_GT(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), 0);
    ::shutdown(fd, SHUT_WR);
    char byte;
    while (::recv(fd, &byte, 1, 0) > 0) {
    }
    ::close(fd);
  });
  TestNode b(1, "", {address});
  const Status refused = b->join();
  EXPECT_EQ(refused.code(), Code::kForbidden);
  EXPECT_THAT(refused.message(), HasSubstr("does not speak the divisi protocol"));
  EXPECT_THAT(refused.message(), HasSubstr(address));
  b.close(100ms);
  server.join();
  ::close(listener);
}

TEST_P(RefusalConformance, AnHttpRequestOnThePortIsClosed) {
  TestNode a(0, fresh(), {});
  RawSocket browser(a->address());
  browser.write("GET / HTTP/1.1\r\nHost: example\r\n\r\n");
  EXPECT_LT(browser.read_to_end().size(), 200u);
  expect_healthy(a, {});
}

TEST_P(RefusalConformance, GarbageAndOversizedGreetingsAreClosed) {
  TestNode a(0, fresh(), {});
  const auto magic = preamble();
  std::vector<std::byte> huge(magic.begin(), magic.end());
  FrameHeader header;
  header.kind = Kind::kHello;
  header.length = 0x7fffffff;
  huge.resize(huge.size() + kHeaderBytes);
  write_header(huge.data() + kPreambleBytes, header);
  std::vector<std::byte> early(magic.begin(), magic.end());
  header.kind = Kind::kEvent;
  header.length = 100;
  early.resize(early.size() + kHeaderBytes + 100);
  write_header(early.data() + kPreambleBytes, header);
  std::vector<std::byte> garbage(magic.begin(), magic.end());
  for (int i = 0; i < 5'000; ++i) garbage.push_back(static_cast<std::byte>(i * 37 + 1));
  for (const auto& bytes : {huge, early, garbage, std::vector<std::byte>(100'000)}) {
    RawSocket stranger(a->address());
    stranger.write(bytes);
    stranger.read_to_end();
  }
  EXPECT_TRUE(a->peers().empty());
  expect_healthy(a, {});
}

TEST_P(RefusalConformance, AStrangerThatSaysNothingIsClosedAfterAWhile) {
  NodeOptions options;
  options.handshake_timeout = 100ms;
  TestNode a(0, fresh(), {}, options);
  RawSocket silent(a->address());
  RawSocket halting(a->address());
  halting.write("DIV");
  silent.read_to_end();
  halting.read_to_end();
  expect_healthy(a, {});
}

TEST_P(RefusalConformance, SilentStrangersTakeNoPlaceOfAPeer) {
  NodeOptions options;
  options.handshake_timeout = 600s;  // only the newcomers push them out
  TestNode a(0, fresh(), {}, options);
  std::vector<std::unique_ptr<RawSocket>> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(std::make_unique<RawSocket>(a->address()));
    if (i % 2 == 0) strangers.back()->write("DIV");
  }
  EXPECT_TRUE(strangers.front()->read_to_end().empty()) << "the oldest makes room";
  expect_healthy(a, {});
}

// Over tcp alone: all of ipc is one source.
TEST(SourcesTest, SilentStrangersOfOneSourcePushOutNobodyOfAnother) {
  NodeOptions options;
  options.handshake_timeout = 600s;
  TestNode a(0, "tcp://127.0.0.1:0", {}, options);
  const RawSocket other(a->address(), "127.0.0.2");
  std::vector<std::unique_ptr<RawSocket>> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(std::make_unique<RawSocket>(a->address()));
  strangers[100]->read_to_end();  // many have made room
  EXPECT_TRUE(other.is_open());
}

TEST_P(RefusalConformance, ManyWorkersOfOneAddressJoinAtOnce) {
  TestNode hub(0, fresh(), {});
  std::vector<std::unique_ptr<TestNode>> workers;
  for (int i = 1; i <= 64; ++i) {
    workers.push_back(std::make_unique<TestNode>(i, "", std::vector{hub->address()}));
  }
  for (const auto& worker : workers) EXPECT_TRUE((*worker)->join().ok());
  EXPECT_TRUE(hub->wait_for_peers(workers.size(), kDeadline));
}

TEST_P(RefusalConformance, StrangersThatGreetAndStopThereTakeNoPlaceOfAPeer) {
  NodeOptions options = job("j", "right");
  options.handshake_timeout = 600s;
  TestNode a(0, fresh(), {}, options);
  std::vector<std::unique_ptr<RawSocket>> strangers;
  for (int i = 0; i < 600; ++i) {
    Identity claimed;
    claimed.job = "j";
    claimed.node = i + 100;
    claimed.incarnation = static_cast<std::uint64_t>(i) + 1;
    Handshake greeting(Handshake::Role::kDialler, claimed, "guess",
                       [](const Identity&) { return Handshake::Verdict(); });
    strangers.push_back(std::make_unique<RawSocket>(a->address()));
    strangers.back()->write(greeting.take_output());
  }
  strangers.front()->read_to_end();
  expect_healthy(a, job("j", "right"));
}

TEST_P(RefusalConformance, AnImpostorThatListensLearnsNothingAfterTheProof) {
  std::string address;
  const int listener = listen_like(fresh(), address);
  std::string heard;
  std::thread impostor([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    Identity claimed;
    claimed.job = "j";
    claimed.incarnation = 99;
    Handshake greeting(Handshake::Role::kAcceptor, claimed, "guess",
                       [](const Identity&) { return Handshake::Verdict(); });
    const auto magic = preamble();
    ASSERT_TRUE(greeting.on_preamble(magic).ok());
    const auto receive = [&](std::size_t size) {
      heard.resize(heard.size() + size);
      char* const at = heard.data() + heard.size() - size;
      return ::recv(fd, at, size, MSG_WAITALL) == static_cast<ssize_t>(size);
    };
    ASSERT_TRUE(receive(kPreambleBytes + kHeaderBytes));
    const auto hello_header =
        read_header(reinterpret_cast<const std::byte*>(heard.data()) + kPreambleBytes);
    ASSERT_TRUE(receive(hello_header.length));
    FrameReader reader;
    ASSERT_TRUE(
        feed(reader, greeting, std::as_bytes(std::span(heard)).subspan(kPreambleBytes)).ok());
    const auto hello = greeting.take_output();
    ASSERT_GT(::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL), 0);
    heard.clear();
    ASSERT_TRUE(receive(kHeaderBytes));
    const auto proof = read_header(reinterpret_cast<const std::byte*>(heard.data()));
    EXPECT_EQ(proof.kind, Kind::kProof);
    ASSERT_TRUE(receive(proof.length));
    const std::string guess = heard;  // its own proof back
    ASSERT_GT(::send(fd, guess.data(), guess.size(), MSG_NOSIGNAL), 0);
    heard.clear();
    char byte;
    while (::recv(fd, &byte, 1, 0) > 0) heard.push_back(byte);
    ::close(fd);
  });
  TestNode b(1, "", {address}, job("j", "right"));
  const Status refused = b->join();
  impostor.join();
  ::close(listener);
  EXPECT_EQ(refused.code(), Code::kUnauthorized);
  EXPECT_THAT(refused.message(), HasSubstr("wrong secret"));
  EXPECT_EQ(heard, "") << "sent after the proof";
}

PayloadView pickled(std::string_view bytes) {
  PayloadView payload;
  payload.codec = Codec::kPickle;
  payload.body = std::as_bytes(std::span(bytes));
  return payload;
}

TEST_P(RefusalConformance, PickledEventsNeedASecretOrLeave) {
  NodeOptions trusting;
  trusting.allow_pickle = true;
  Inbox<std::size_t> at_a;
  Inbox<std::size_t> at_b;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()}, trusting);
  link(a, b);
  a.on("n", [&](const Buffer& bytes) { at_a.add(bytes.size()); });
  a.on("number", [&](std::size_t n) { at_a.add(n); });
  b.on("n", [&](const Buffer& bytes) { at_b.add(bytes.size()); });

  const Status refused = a->send("n", pickled("abc"), {});
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("--secret-file"));
  EXPECT_THAT(refused.message(), HasSubstr("--allow-pickle"));

  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(b->send("n", pickled("abc"), {}).ok());
  ASSERT_TRUE(b.emit("number", std::size_t{7}).ok());
  EXPECT_TRUE(at_a.reaches(1));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(at_a.values(), std::vector<std::size_t>{7});
  EXPECT_TRUE(eventually([&] { return a.stats_of(1).refused == 3; }));
  EXPECT_EQ(a.stats_of(1).reconnects, 0u);
  EXPECT_THAT(said, HasSubstr("node 1 sends pickled events"));
  EXPECT_EQ(said.find("pickled"), said.rfind("pickled")) << "told once:\n" << said;
}

TEST_P(RefusalConformance, PickledEventsOfAJobWithASecretArrive) {
  Inbox<std::size_t> seen;
  TestNode a(0, fresh(), {}, job("j", "s"));
  TestNode b(1, "", {a->address()}, job("j", "s"));
  link(a, b);
  a.on("n", [&](const Buffer& bytes) { seen.add(bytes.size()); });
  ASSERT_TRUE(b->send("n", pickled("abc"), {}).ok());
  EXPECT_TRUE(seen.reaches(1));
}

TEST_P(RefusalConformance, TwoProcessesWithOneNodeIdAreToldSo) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  TestNode first(1, "", {a->address()});
  link(a, first);
  NodeOptions options;
  options.lost_after = 1s;  // for so long the newcomers believe that the other may be dying
  TestNode second(1, "", {a->address()}, options);
  const Status refused = second->join();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.message(), HasSubstr("node id 1 is taken"));
  TestNode same(0, "", {a->address()}, options);
  EXPECT_THAT(same->join().message(), HasSubstr("node id 0 is taken"));
  EXPECT_TRUE(a.linked_with(1));
  first.on("n", [&](int n) { seen.add(n); });
  ASSERT_TRUE(a.emit("n", 1).ok());
  EXPECT_TRUE(seen.reaches(1));
}

TEST_P(RefusalConformance, ANodeThatDialsItselfJoins) {
  const Reserved place(fresh());  // the address must be known before
  TestNode a(0, place.address(), {place.address()});
  EXPECT_TRUE(a->join().ok());
  EXPECT_TRUE(a->peers().empty());
}

TEST_P(RefusalConformance, NodesThatDialEachOtherHaveOneLink) {
  for (int round = 0; round < 20; ++round) {
    const Reserved first(fresh());
    const Reserved second(fresh());
    TestNode a(0, first.address(), {second.address()});
    TestNode b(1, second.address(), {first.address()});
    link(a, b);
    Inbox<int> at_a;
    Inbox<int> at_b;
    a.on("n", [&](int n) { at_a.add(n); });
    b.on("n", [&](int n) { at_b.add(n); });
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(a.emit("n", i).ok());
      ASSERT_TRUE(b.emit("n", i).ok());
    }
    ASSERT_TRUE(at_a.reaches(200));
    ASSERT_TRUE(at_b.reaches(200));
    EXPECT_EQ(a->peers().size(), 1u);
    EXPECT_EQ(at_a.size(), 200u);
    EXPECT_EQ(at_b.size(), 200u);
  }
}

TEST_P(RefusalConformance, AnAddressThatIsTakenIsNamed) {
  TestNode a(0, fresh(), {});
  auto reactor = io::make_reactor();
  NodeOptions options;
  options.listen = a->address();
  const auto second = Node::start(*reactor, options, {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  EXPECT_THAT(second.error().message(), HasSubstr("cannot listen on " + a->address()));
  EXPECT_THAT(second.error().message(), HasSubstr("in use"));
}

TEST_P(RefusalConformance, AnUnreachablePeerIsNamedWhenTheTimeIsUp) {
  const Reserved nobody(fresh());
  NodeOptions options;
  options.join_timeout = 200ms;
  options.expected_nodes = {4, 5};
  TestNode a(0, "", {nobody.address()}, options);
  const Status status = a->join();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("join timeout"));
  EXPECT_THAT(status.message(), HasSubstr(nobody.address()));
  EXPECT_THAT(status.message(), HasSubstr("node 4"));
  EXPECT_THAT(status.message(), HasSubstr("node 5"));
}

TEST_P(RefusalConformance, JoiningCanBeCancelled) {
  const Reserved nobody(fresh());
  TestNode a(0, "", {nobody.address()});
  std::thread canceller([&] { a->cancel_join(); });
  EXPECT_EQ(a->join().code(), Code::kCancelled);
  canceller.join();
}

TEST_P(RefusalConformance, APeerMayStartLater) {
  const Reserved place(fresh());
  TestNode b(1, "", {place.address()});
  std::unique_ptr<TestNode> a;
  std::thread later(
      [&] { a = std::make_unique<TestNode>(0, place.address(), std::vector<std::string>()); });
  EXPECT_TRUE(b->join().ok());
  later.join();
}

TEST(AddressTest, AnAddressOfAnotherMachineCannotBeListenedOn) {
  auto reactor = io::make_reactor();
  NodeOptions options;
  options.listen = "tcp://203.0.113.7:0";
  const auto node = Node::start(*reactor, options, {});
  ASSERT_FALSE(node.has_value());
  EXPECT_THAT(node.error().message(), HasSubstr("203.0.113.7"));
  EXPECT_THAT(node.error().message(), HasSubstr("no such address"));
  options.listen = "ipc:///no/such/folder/socket";
  const auto missing = Node::start(*reactor, options, {});
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("/no/such/folder/socket"));
  options.listen = "carrier-pigeon://a";
  EXPECT_FALSE(Node::start(*reactor, options, {}).has_value());
  options.listen = "";
  options.dial = {"no-port"};
  EXPECT_FALSE(Node::start(*reactor, options, {}).has_value());
}

}  // namespace
}  // namespace divisi::mesh::testing
