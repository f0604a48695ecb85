#include "mesh/handshake.h"

#include "base/log.h"
#include "divisi/packer.h"
#include "io/crypto.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace divisi::mesh {

namespace {

// Bounds on what a stranger may make us keep.
constexpr std::size_t kMaxText = 1024;
constexpr std::size_t kMaxLabels = 1024;

std::string bounded_text(Unpacker& in, const char* what) {
  const std::string_view text = in.text();
  if (text.size() > kMaxText) throw PayloadError(fmt::format("{} is too long", what));
  return std::string(text);
}

// A stranger's text for a line of the log.
std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 64;
  return log::printable(text.size() <= kMost ? text : text.substr(0, kMost) + "...");
}

std::uint64_t unsigned_number(Unpacker& in, const char* what) {
  const Number number = in.number(what);
  if (number.kind != Number::Kind::kUnsigned) {
    throw PayloadError(fmt::format("{} is not a whole number from 0", what));
  }
  return number.as_unsigned;
}

void fixed_bytes(Unpacker& in, std::span<std::byte> into, const char* what) {
  const auto bytes = in.bytes();
  if (bytes.size() != into.size()) {
    throw PayloadError(
        fmt::format("{} has {} bytes instead of {}", what, bytes.size(), into.size()));
  }
  std::memcpy(into.data(), bytes.data(), bytes.size());
}

// Calls `on_key(key, in)` for each entry; one that returns false is skipped.
template <class OnKey>
Status read_map(std::span<const std::byte> content, OnKey on_key) {
  try {
    Unpacker in(content);
    const std::size_t count = in.map();
    for (std::size_t i = 0; i < count; ++i) {
      const std::string_view key = in.text();
      if (!on_key(key, in)) in.skip();
    }
    return {};
  } catch (const std::exception& error) {
    return make_status(Code::kInvalid, "malformed greeting: {}", error.what());
  }
}

bool read_admission(std::string_view key, Unpacker& in, Identity& peer, Resume& resume) {
  if (key == "resume") {
    resume.received = unsigned_number(in, "resume");
  } else if (key == "credit") {
    resume.credit = unsigned_number(in, "credit");
  } else if (key == "listen") {
    peer.listen = bounded_text(in, "listen");
  } else if (key == "linked") {
    resume.linked = in.boolean();
  } else if (key == "max_message") {
    peer.max_message = unsigned_number(in, "max_message");
  } else if (key == "labels") {
    const std::size_t count = in.array();
    if (count > kMaxLabels) throw PayloadError("too many labels");
    for (std::size_t i = 0; i < count; ++i) peer.labels.insert(bounded_text(in, "label"));
    in.leave();
  } else {
    return false;
  }
  return true;
}

}  // namespace

Handshake::Handshake(Role role, Identity self, std::string secret, Admit admit)
    : role_(role), self_(std::move(self)), secret_(std::move(secret)), admit_(std::move(admit)) {
  io::fill_random(nonce_);
  if (role_ == Role::kDialler) send_hello();
}

std::vector<std::byte> Handshake::take_output() {
  return std::exchange(output_, {});
}

Status Handshake::on_preamble(std::span<const std::byte> bytes) {
  if (bytes.size() != kPreambleBytes ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    state_ = State::kFailed;
    reject_code_ = RejectCode::kProtocol;
    error_ = make_status(Code::kForbidden, "the peer does not speak the divisi protocol");
    return error_;
  }
  std::uint16_t version = 0;
  std::memcpy(&version, bytes.data() + kMagic.size(), sizeof version);
  if (version == kProtocolVersion) return {};
  const auto reason =
      fmt::format("protocol version {} meets version {}", version, kProtocolVersion);
  return reject(RejectCode::kVersion, reason);
}

std::size_t Handshake::max_length(Kind kind) const {
  return kind >= Kind::kHello && kind <= Kind::kReject ? kMaxHandshake : 0;
}

Result<std::byte*> Handshake::landing(const FrameHeader&, std::size_t, std::uint64_t) {
  return failure(Code::kInvalid, "no events before the greeting is over");
}

Status Handshake::on_frame(const FrameHeader& header, std::span<const std::byte> content,
                           const Buffer&, bool) {
  Status status;
  switch (header.kind) {
    case Kind::kHello: status = on_hello(content); break;
    case Kind::kProof: status = on_proof(content); break;
    case Kind::kWelcome: status = on_welcome(content); break;
    case Kind::kReject: status = on_reject(content); break;
    default: status = make_status(Code::kInvalid, "an event before the greeting is over"); break;
  }
  if (!status.ok() && state_ == State::kRunning) {
    return reject(RejectCode::kProtocol, status.message());
  }
  return status;
}

Status Handshake::on_hello(std::span<const std::byte> content) {
  if (std::exchange(seen_hello_, true)) return make_status(Code::kInvalid, "a second greeting");
  bool has_nonce = false;
  bool has_node = false;
  DIVISI_TRY_STATUS(read_map(content, [&](std::string_view key, Unpacker& in) {
    if (key == "job") {
      peer_.job = bounded_text(in, "job");
    } else if (key == "node") {
      const std::uint64_t node = unsigned_number(in, "node");
      if (node > 0x7fffffff) throw PayloadError("node is out of range");
      peer_.node = static_cast<int>(node);
      has_node = true;
    } else if (key == "incarnation") {
      peer_.incarnation = unsigned_number(in, "incarnation");
    } else if (key == "nonce") {
      fixed_bytes(in, peer_nonce_, "nonce");
      has_nonce = true;
    } else if (key == "auth") {
      peer_has_secret_ = in.boolean();
    } else {
      return false;
    }
    return true;
  }));
  if (!has_nonce || !has_node || peer_.incarnation == 0) {
    return make_status(Code::kInvalid, "a greeting without node, incarnation or nonce");
  }
  if (peer_.incarnation == self_.incarnation) {
    return reject(RejectCode::kSelf, "this address is the node's own");
  }
  if (peer_.job != self_.job) {
    return reject(RejectCode::kJob, "another job id",
                  fmt::format("job id '{}' meets '{}'", shortened(peer_.job), self_.job));
  }
  if (peer_has_secret_ != !secret_.empty()) {
    return reject(RejectCode::kSecret, peer_has_secret_
                                           ? "wrong secret: the other node of this pair has none"
                                           : "wrong secret: the job needs one, see --secret-file");
  }
  if (role_ == Role::kAcceptor) {
    send_hello();
  } else {
    send_proof();
  }
  return {};
}

Status Handshake::check_peer_proof(std::span<const std::byte> proof) {
  const Role peer_role = role_ == Role::kDialler ? Role::kAcceptor : Role::kDialler;
  if (!io::equal_constant_time(proof, proof_of(peer_role))) {
    return reject(RejectCode::kSecret, "wrong secret");
  }
  peer_proved_ = true;
  return {};
}

Status Handshake::on_proof(std::span<const std::byte> content) {
  if (!seen_hello_ || peer_proved_) return make_status(Code::kInvalid, "a proof out of turn");
  std::array<std::byte, 32> proof{};
  DIVISI_TRY_STATUS(read_map(content, [&](std::string_view key, Unpacker& in) {
    if (key == "proof") {
      fixed_bytes(in, proof, "proof");
      return true;
    }
    return role_ == Role::kDialler && read_admission(key, in, peer_, peer_resume_);
  }));
  DIVISI_TRY_STATUS(check_peer_proof(proof));
  Verdict verdict = admit_(peer_);
  if (!verdict.reason.empty()) return reject(verdict.reject, std::move(verdict.reason));
  own_resume_ = verdict.resume;
  if (role_ == Role::kAcceptor) {
    send_admission(Kind::kProof, verdict.resume);
  } else {
    send_admission(Kind::kWelcome, verdict.resume);
    state_ = State::kDone;
  }
  return {};
}

Status Handshake::on_welcome(std::span<const std::byte> content) {
  if (role_ != Role::kAcceptor || !peer_proved_) {
    return make_status(Code::kInvalid, "a welcome out of turn");
  }
  DIVISI_TRY_STATUS(read_map(content, [&](std::string_view key, Unpacker& in) {
    return read_admission(key, in, peer_, peer_resume_);
  }));
  state_ = State::kDone;
  return {};
}

Status Handshake::on_reject(std::span<const std::byte> content) {
  std::string reason = "no reason given";
  std::uint64_t code = 0;
  const Status read = read_map(content, [&](std::string_view key, Unpacker& in) {
    if (key == "reason") {
      reason = bounded_text(in, "reason");
    } else if (key == "code") {
      code = unsigned_number(in, "code");
    } else {
      return false;
    }
    return true;
  });
  if (!read.ok()) reason = "an unreadable rejection";
  reason = log::printable(std::move(reason));
  if (code == static_cast<std::uint64_t>(RejectCode::kJob)) {
    reason += fmt::format(" (ours is '{}', see --job-id)", self_.job);
  }
  state_ = State::kFailed;
  rejected_by_peer_ = true;
  reject_code_ = static_cast<RejectCode>(std::min<std::uint64_t>(code, 255));
  error_ = make_status(Code::kForbidden, "refused by the peer: {}", reason);
  return error_;
}

Status Handshake::reject(RejectCode code, std::string reason, std::string own_reason) {
  const bool to_impostor = role_ == Role::kDialler && proof_sent_ && !peer_proved_;
  if (!to_impostor) {
    send_preamble();  // an acceptor that refuses at once has not sent it yet
    Packer body;
    body.map(2);
    body.text("code");
    body.unsigned_integer(static_cast<std::uint64_t>(code));
    body.text("reason");
    body.text(reason);
    send(Kind::kReject, body.body());
  }
  if (!own_reason.empty()) reason = std::move(own_reason);
  state_ = State::kFailed;
  reject_code_ = code;
  error_ = make_status(code == RejectCode::kSecret || code == RejectCode::kJob ? Code::kUnauthorized
                                                                               : Code::kForbidden,
                       "refused the peer: {}", reason);
  return error_;
}

void Handshake::send(Kind kind, std::span<const std::byte> body) {
  FrameHeader header;
  header.kind = kind;
  header.length = static_cast<std::uint32_t>(body.size());
  std::byte bytes[kHeaderBytes];
  write_header(bytes, header);
  output_.insert(output_.end(), bytes, bytes + kHeaderBytes);
  output_.insert(output_.end(), body.begin(), body.end());
}

void Handshake::send_preamble() {
  if (std::exchange(preamble_sent_, true)) return;
  const auto bytes = preamble();
  output_.insert(output_.end(), bytes.begin(), bytes.end());
}

void Handshake::send_hello() {
  send_preamble();
  Packer body;
  body.map(5);
  body.text("job");
  body.text(self_.job);
  body.text("node");
  body.unsigned_integer(static_cast<std::uint64_t>(self_.node));
  body.text("incarnation");
  body.unsigned_integer(self_.incarnation);
  body.text("nonce");
  body.bytes(nonce_);
  body.text("auth");
  body.boolean(!secret_.empty());
  send(Kind::kHello, body.body());
}

void Handshake::send_proof() {
  proof_sent_ = true;
  Packer body;
  body.map(1);
  body.text("proof");
  body.bytes(proof_of(role_));
  send(Kind::kProof, body.body());
}

void Handshake::send_admission(Kind kind, const Resume& resume) {
  const bool with_proof = kind == Kind::kProof;
  Packer body;
  body.map(with_proof ? 7 : 6);
  if (with_proof) {
    body.text("proof");
    body.bytes(proof_of(role_));
  }
  body.text("resume");
  body.unsigned_integer(resume.received);
  body.text("credit");
  body.unsigned_integer(resume.credit);
  body.text("linked");
  body.boolean(resume.linked.value_or(false));
  body.text("listen");
  body.text(self_.listen);
  body.text("max_message");
  body.unsigned_integer(self_.max_message);
  body.text("labels");
  body.array(self_.labels.size());
  for (const auto& label : self_.labels) body.text(label);
  send(kind, body.body());
}

// Binds the proof to both nonces, to the direction, and to who the two claim to be.
std::array<std::byte, 32> Handshake::proof_of(Role role) const {
  const bool ours = role == role_;
  const bool we_dialled = role_ == Role::kDialler;
  std::vector<std::byte> message;
  const auto add = [&](std::span<const std::byte> bytes) {
    message.insert(message.end(), bytes.begin(), bytes.end());
  };
  const auto add_text = [&](std::string_view text) { add(std::as_bytes(std::span(text))); };
  const auto add_identity = [&](const Identity& identity) {
    const std::uint64_t numbers[] = {static_cast<std::uint64_t>(identity.node),
                                     identity.incarnation};
    add(std::as_bytes(std::span(numbers)));
  };
  add_text(role == Role::kDialler ? "divisi dialler" : "divisi acceptor");
  add(we_dialled ? nonce_ : peer_nonce_);
  add(we_dialled ? peer_nonce_ : nonce_);
  add_identity(ours ? self_ : peer_);
  add_identity(ours ? peer_ : self_);
  add_text(self_.job);
  return io::hmac_sha256(secret_, message);
}

}  // namespace divisi::mesh
