// The greeting, without sockets: who is let in, who is told what, and what no bytes can do.
#include "mesh/handshake.h"

#include "divisi/packer.h"
#include "mesh/testing/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace divisi::mesh::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Identity who(int node, const std::string& job = "job") {
  Identity identity;
  identity.job = job;
  identity.node = node;
  identity.incarnation = static_cast<std::uint64_t>(node) + 100;
  identity.labels = {"label", "node." + std::to_string(node)};
  identity.listen = "tcp://127.0.0.1:" + std::to_string(node);
  return identity;
}

Handshake::Admit welcome(Resume resume = {7, 1'000}) {
  return
      [resume](const Identity&) { return Handshake::Verdict{RejectCode::kProtocol, "", resume}; };
}
Handshake::Admit refuse(RejectCode code, std::string reason) {
  return [=](const Identity&) { return Handshake::Verdict{code, reason, {}}; };
}

// One end of a connection without one.
struct End {
  End(Handshake::Role role, Identity self, std::string secret, Handshake::Admit admit)
      : shake(role, std::move(self), std::move(secret), std::move(admit)) {}

  void receive(std::vector<std::byte> bytes) {
    std::span<const std::byte> rest = bytes;
    while (preamble.size() < kPreambleBytes && !rest.empty()) {
      preamble.push_back(rest.front());
      rest = rest.subspan(1);
      if (preamble.size() == kPreambleBytes && !shake.on_preamble(preamble).ok()) return;
    }
    if (!rest.empty() && !shake.done()) (void)feed(reader, shake, rest);
  }

  Handshake shake;
  FrameReader reader;
  std::vector<std::byte> preamble;
};

void talk(End& dialler, End& acceptor) {
  for (int i = 0; i < 10; ++i) {
    acceptor.receive(dialler.shake.take_output());
    dialler.receive(acceptor.shake.take_output());
  }
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr auto kDialler = Handshake::Role::kDialler;
constexpr auto kAcceptor = Handshake::Role::kAcceptor;
constexpr auto kDone = Handshake::State::kDone;
constexpr auto kFailed = Handshake::State::kFailed;

TEST(HandshakeTest, TwoNodesOfOneJobLearnAboutEachOther) {
  for (const char* secret : {"", "s3cret"}) {
    End dialler(kDialler, who(1), secret, welcome({3, 30}));
    End acceptor(kAcceptor, who(2), secret, welcome({4, 40}));
    talk(dialler, acceptor);
    ASSERT_EQ(dialler.shake.state(), kDone) << dialler.shake.error().message();
    ASSERT_EQ(acceptor.shake.state(), kDone) << acceptor.shake.error().message();
    EXPECT_EQ(dialler.shake.peer().node, 2);
    EXPECT_EQ(acceptor.shake.peer().incarnation, 101u);
    EXPECT_EQ(dialler.shake.peer().labels, who(2).labels);
    EXPECT_EQ(acceptor.shake.peer().labels, who(1).labels);
    EXPECT_EQ(acceptor.shake.peer().listen, who(1).listen);
    EXPECT_EQ(dialler.shake.peer_resume().received, 4u);
    EXPECT_EQ(dialler.shake.peer_resume().credit, 40u);
    EXPECT_EQ(acceptor.shake.peer_resume().received, 3u);
    EXPECT_EQ(acceptor.shake.own_resume()->credit, 40u);
  }
}

TEST(HandshakeTest, TheTruthTableOfRefusals) {
  const struct {
    const char* what;
    Identity dialler, acceptor;
    const char* dialler_secret;
    const char* acceptor_secret;
    RejectCode code;
    const char* reason;
  } kCases[] = {
      {"job", who(1, "a"), who(2, "b"), "s", "s", RejectCode::kJob, "job id"},
      {"empty job", who(1, ""), who(2, "b"), "", "", RejectCode::kJob, "job id"},
      {"secret", who(1), who(2), "s", "t", RejectCode::kSecret, "wrong secret"},
      {"dialler has none", who(1), who(2), "", "t", RejectCode::kSecret, "needs one"},
      {"acceptor has none", who(1), who(2), "s", "", RejectCode::kSecret, "has none"},
      {"itself", who(1), who(1), "s", "s", RejectCode::kSelf, "own"},
  };
  for (const auto& test : kCases) {
    End dialler(kDialler, test.dialler, test.dialler_secret, welcome());
    End acceptor(kAcceptor, test.acceptor, test.acceptor_secret, welcome());
    talk(dialler, acceptor);
    for (const End* end : {&dialler, &acceptor}) {
      EXPECT_EQ(end->shake.state(), kFailed) << test.what;
      EXPECT_EQ(end->shake.reject_code(), test.code) << test.what;
      EXPECT_THAT(end->shake.error().message(), HasSubstr(test.reason)) << test.what;
    }
    EXPECT_NE(dialler.shake.rejected_by_peer(), acceptor.shake.rejected_by_peer()) << test.what;
  }
}

TEST(HandshakeTest, TheNodeMayRefuseAPeerThatProvedItself) {
  for (const bool dialler_refuses : {false, true}) {
    End dialler(kDialler, who(1), "s",
                dialler_refuses ? refuse(RejectCode::kDuplicate, "taken") : welcome());
    End acceptor(kAcceptor, who(2), "s",
                 dialler_refuses ? welcome() : refuse(RejectCode::kDuplicate, "taken"));
    talk(dialler, acceptor);
    for (const End* end : {&dialler, &acceptor}) {
      EXPECT_EQ(end->shake.state(), kFailed);
      EXPECT_EQ(end->shake.reject_code(), RejectCode::kDuplicate);
      EXPECT_THAT(end->shake.error().message(), HasSubstr("taken"));
    }
  }
}

TEST(HandshakeTest, NobodyIsAskedBeforeTheProof) {
  bool asked = false;
  End dialler(kDialler, who(1), "wrong", welcome());
  End acceptor(kAcceptor, who(2), "right", [&](const Identity&) {
    asked = true;
    return Handshake::Verdict{RejectCode::kProtocol, "", {}};
  });
  talk(dialler, acceptor);
  EXPECT_FALSE(asked);
}

TEST(HandshakeTest, AProofIsTakenOnce) {
  int asked = 0;
  End dialler(kDialler, who(1), "s", welcome());
  End acceptor(kAcceptor, who(2), "s", [&](const Identity&) {
    ++asked;
    return Handshake::Verdict{RejectCode::kProtocol, "", {}};
  });
  acceptor.receive(dialler.shake.take_output());
  dialler.receive(acceptor.shake.take_output());
  const auto proof = dialler.shake.take_output();
  acceptor.receive(proof);
  EXPECT_EQ(acceptor.shake.state(), Handshake::State::kRunning);
  acceptor.receive(proof);
  EXPECT_EQ(acceptor.shake.state(), kFailed);
  EXPECT_THAT(acceptor.shake.error().message(), HasSubstr("out of turn"));
  EXPECT_EQ(asked, 1);
}

TEST(HandshakeTest, LabelsAndAddressesAreNotToldToStrangers) {
  End dialler(kDialler, who(1), "wrong", welcome());
  End acceptor(kAcceptor, who(2), "right", welcome());
  for (int i = 0; i < 3; ++i) {
    const auto asked = dialler.shake.take_output();
    acceptor.receive(asked);
    const auto answer = acceptor.shake.take_output();
    dialler.receive(answer);
    for (const std::string& text : {text_of(asked), text_of(answer)}) {
      EXPECT_EQ(text.find("label"), std::string::npos);
      EXPECT_EQ(text.find("127.0.0.1"), std::string::npos);
    }
  }
}

std::vector<std::byte> frame(Kind kind, std::span<const std::byte> body) {
  FrameHeader header;
  header.kind = kind;
  header.length = static_cast<std::uint32_t>(body.size());
  std::vector<std::byte> bytes(kHeaderBytes + body.size());
  write_header(bytes.data(), header);
  if (!body.empty()) std::memcpy(bytes.data() + kHeaderBytes, body.data(), body.size());
  return bytes;
}

// The bytes of a HELLO, valid unless told otherwise.
struct Hello {
  std::string job = "job";
  std::uint64_t node = 1;
  std::uint64_t incarnation = 5;
  std::size_t nonce = 32;
  bool with_nonce = true;
  bool with_node = true;
  bool unknown = false;

  std::vector<std::byte> bytes() const {
    Packer body;
    body.map(3u + (with_nonce ? 1 : 0) + (with_node ? 1 : 0) + (unknown ? 1 : 0));
    if (unknown) {
      body.text("colour");
      body.array(2);
      body.text("blue");
      body.map(1);
      body.text("deep");
      body.nil();
    }
    body.text("job");
    body.text(job);
    if (with_node) {
      body.text("node");
      body.unsigned_integer(node);
    }
    body.text("incarnation");
    body.unsigned_integer(incarnation);
    if (with_nonce) {
      body.text("nonce");
      body.bytes(std::vector<std::byte>(nonce));
    }
    body.text("auth");
    body.boolean(true);
    auto all = frame(Kind::kHello, body.body());
    const auto magic = preamble();
    all.insert(all.begin(), magic.begin(), magic.end());
    return all;
  }
};

Handshake::State fate_of(const std::vector<std::byte>& bytes, std::string* why = nullptr) {
  End acceptor(kAcceptor, who(2), "s", welcome());
  acceptor.receive(bytes);
  if (why != nullptr) *why = acceptor.shake.error().message();
  return acceptor.shake.state();
}

TEST(HandshakeTest, AGreetingMustBeComplete) {
  EXPECT_EQ(fate_of(Hello().bytes()), Handshake::State::kRunning);
  Hello unknown;
  unknown.unknown = true;
  EXPECT_EQ(fate_of(unknown.bytes()), Handshake::State::kRunning) << "a later version may say more";
  Hello bad;
  bad.with_nonce = false;
  EXPECT_EQ(fate_of(bad.bytes()), kFailed);
  bad = {};
  bad.nonce = 31;
  EXPECT_EQ(fate_of(bad.bytes()), kFailed);
  bad = {};
  bad.with_node = false;
  EXPECT_EQ(fate_of(bad.bytes()), kFailed);
  bad = {};
  bad.node = 0x80000000;
  EXPECT_EQ(fate_of(bad.bytes()), kFailed);
  bad = {};
  bad.incarnation = 0;
  EXPECT_EQ(fate_of(bad.bytes()), kFailed);
  bad = {};
  bad.job = std::string(5'000, 'j');
  EXPECT_EQ(fate_of(bad.bytes()), kFailed);
  auto cut = Hello().bytes();
  cut.resize(cut.size() - 1);
  cut[kPreambleBytes + 4] =
      static_cast<std::byte>(std::to_integer<int>(cut[kPreambleBytes + 4]) - 1);
  EXPECT_EQ(fate_of(cut), kFailed);
}

TEST(HandshakeTest, FramesOutOfTurnAreRefused) {
  const auto magic = preamble();
  for (const Kind kind : {Kind::kProof, Kind::kWelcome, Kind::kEvent, Kind::kAck, Kind::kReady}) {
    auto bytes = frame(kind, {});
    bytes.insert(bytes.begin(), magic.begin(), magic.end());
    EXPECT_EQ(fate_of(bytes), kFailed) << static_cast<int>(kind);
  }
  auto twice = Hello().bytes();
  const auto again = Hello().bytes();
  twice.insert(twice.end(), again.begin() + kPreambleBytes, again.end());
  EXPECT_EQ(fate_of(twice), kFailed);
  auto welcome_first = Hello().bytes();
  const auto unproved = frame(Kind::kWelcome, {});
  welcome_first.insert(welcome_first.end(), unproved.begin(), unproved.end());
  EXPECT_EQ(fate_of(welcome_first), kFailed);
}

std::vector<Kind> kinds_of(const std::vector<std::byte>& frames) {
  std::vector<Kind> kinds;
  for (std::size_t at = 0; at < frames.size();) {
    const FrameHeader header = read_header(frames.data() + at);
    kinds.push_back(header.kind);
    at += kHeaderBytes + header.length;
  }
  return kinds;
}

std::vector<std::byte> proof_frame(std::span<const std::byte> proof) {
  Packer body;
  body.map(1);
  body.text("proof");
  body.bytes(proof);
  return frame(Kind::kProof, body.body());
}

TEST(HandshakeTest, AProofCannotBeSentBackToItsMaker) {
  // An impostor without the secret hands the dialler's own proof back.
  End dialler(kDialler, who(1), "s", welcome());
  (void)dialler.shake.take_output();
  dialler.receive(Hello().bytes());
  const auto proof = dialler.shake.take_output();
  ASSERT_THAT(kinds_of(proof), ElementsAre(Kind::kProof));
  dialler.receive(proof);
  EXPECT_EQ(dialler.shake.state(), kFailed);
  EXPECT_EQ(dialler.shake.reject_code(), RejectCode::kSecret);
}

TEST(HandshakeTest, TheDiallerRefusesAnImpostorAndSendsNothingAfterItsProof) {
  const std::vector<std::byte> wrong(32, std::byte{0x5a});
  const std::vector<std::byte> nothing;
  auto hello = Hello().bytes();
  hello.erase(hello.begin(), hello.begin() + kPreambleBytes);  // a second one
  for (const auto& answer :
       {proof_frame(wrong), proof_frame(nothing), frame(Kind::kWelcome, nothing), hello}) {
    bool asked = false;
    End dialler(kDialler, who(1), "s", [&](const Identity&) {
      asked = true;
      return Handshake::Verdict{RejectCode::kProtocol, "", {}};
    });
    (void)dialler.shake.take_output();
    dialler.receive(Hello().bytes());
    ASSERT_THAT(kinds_of(dialler.shake.take_output()), ElementsAre(Kind::kProof));
    dialler.receive(answer);
    EXPECT_EQ(dialler.shake.state(), kFailed);
    EXPECT_FALSE(dialler.shake.rejected_by_peer());
    EXPECT_FALSE(asked);
    EXPECT_TRUE(dialler.shake.take_output().empty());
  }
  End dialler(kDialler, who(1), "s", welcome());
  dialler.receive(Hello().bytes());
  dialler.receive(proof_frame(wrong));
  EXPECT_EQ(dialler.shake.reject_code(), RejectCode::kSecret);
  EXPECT_THAT(dialler.shake.error().message(), HasSubstr("wrong secret"));
}

TEST(HandshakeTest, AStrangerGetsNothingMadeOfTheSecret) {
  // The random nonce aside, the answers of two jobs with different secrets are the same.
  const auto answers = [](const std::string& secret) {
    End acceptor(kAcceptor, who(2), secret, welcome());
    acceptor.receive(Hello().bytes());
    auto said = acceptor.shake.take_output();
    const std::vector<std::byte> greeting(said.begin() + kPreambleBytes, said.end());
    EXPECT_THAT(kinds_of(greeting), ElementsAre(Kind::kHello));
    acceptor.receive(proof_frame(std::vector<std::byte>(32)));
    const auto refusal = acceptor.shake.take_output();
    EXPECT_THAT(kinds_of(refusal), ElementsAre(Kind::kReject));
    return std::pair(said.size(), refusal);
  };
  EXPECT_EQ(answers("one secret"), answers("the other secret"));
}

TEST(HandshakeTest, TheRefusalOfAnotherJobDoesNotNameOurs) {
  End dialler(kDialler, who(1, "theirs"), "s", welcome());
  End acceptor(kAcceptor, who(2, "treasure"), "s", welcome());
  acceptor.receive(dialler.shake.take_output());
  const auto answer = acceptor.shake.take_output();
  EXPECT_EQ(text_of(answer).find("treasure"), std::string::npos);
  EXPECT_THAT(acceptor.shake.error().message(), HasSubstr("job id 'theirs' meets 'treasure'"));
  dialler.receive(answer);
  EXPECT_EQ(dialler.shake.reject_code(), RejectCode::kJob);
  EXPECT_THAT(dialler.shake.error().message(), HasSubstr("another job id (ours is 'theirs'"));
}

TEST(HandshakeTest, TheGoldenGreetingIsUnderstood) {
  const auto read = [](const std::string& name) {
    std::ifstream in(std::string(DIVISI_GOLDEN_DIR) + "/" + name + ".bin", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  End acceptor(kAcceptor, who(2, "train"), "s", welcome());
  acceptor.receive(read("preamble"));
  acceptor.receive(read("hello"));
  ASSERT_EQ(acceptor.shake.state(), Handshake::State::kRunning) << acceptor.shake.error().message();
  EXPECT_EQ(acceptor.shake.peer().node, 3);
  EXPECT_EQ(acceptor.shake.peer().job, "train");
  EXPECT_EQ(acceptor.shake.peer().incarnation, 0x0102030405060708u);
  End dialler(kDialler, who(1), "s", welcome());
  dialler.receive(read("preamble"));
  dialler.receive(read("reject"));
  EXPECT_EQ(dialler.shake.state(), kFailed);
  EXPECT_TRUE(dialler.shake.rejected_by_peer());
  EXPECT_EQ(dialler.shake.reject_code(), RejectCode::kSecret);
  EXPECT_THAT(dialler.shake.error().message(), HasSubstr("wrong secret"));
}

TEST(HandshakeTest, ARejectionFromAStrangerCannotWriteToTheTerminal) {
  Packer body;
  body.map(2);
  body.text("code");
  body.unsigned_integer(99'999);
  body.text("reason");
  body.text("\x1b[2Jgone\n");
  End dialler(kDialler, who(1), "s", welcome());
  const auto magic = preamble();
  dialler.receive({magic.begin(), magic.end()});
  dialler.receive(frame(Kind::kReject, body.body()));
  EXPECT_EQ(dialler.shake.state(), kFailed);
  EXPECT_THAT(dialler.shake.error().message(), HasSubstr("?[2Jgone?"));
}

}  // namespace
}  // namespace divisi::mesh::testing
