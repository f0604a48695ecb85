// The greeting of two nodes, as a state machine over frames; no sockets, no clock.
//
//   dialler -> acceptor   preamble, HELLO {job, node, incarnation, nonce, auth}
//   acceptor -> dialler   preamble, HELLO {...}
//   dialler -> acceptor   PROOF {proof}
//   acceptor -> dialler   PROOF {proof, resume, credit, labels, listen}
//   dialler -> acceptor   WELCOME {resume, credit, labels, listen}
//
// Either side may answer REJECT {code, reason} instead, and closes. The proof is an HMAC over both
// nonces, so it shows that the sender holds the job's secret now; nothing but the greeting is
// decoded before it. Who connects proves first: a stranger gets nothing made of the secret. Labels
// and addresses travel only towards a peer that has proved itself, and a dialler that has sent its
// proof sends nothing more, not even a REJECT, to an acceptor that gives no valid one back.
#pragma once

#include "base/status.h"
#include "divisi/buffer.h"
#include "mesh/frame_reader.h"
#include "mesh/wire.h"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace divisi::mesh {

// Who a node is.
struct Identity {
  std::string job;
  int node = 0;
  std::uint64_t incarnation = 0;  // random for each life of a process
  std::set<std::string> labels;
  std::string listen;
  std::uint64_t max_message = 0;  // bytes of the longest message that it takes; 0: not said
};

// What two nodes tell each other about the state they share from an earlier connection.
struct Resume {
  std::uint64_t received = 0;  // last sequence number received from this incarnation
  std::uint64_t credit = 0;    // bytes that may be sent on the new connection
  // Whether the teller has a link with this incarnation, whose numbers go on; not all say.
  std::optional<bool> linked{};
};

// Why a peer was refused; a number on the wire, stable across versions.
enum class RejectCode : std::uint8_t {
  kVersion = 1,    // another protocol version
  kJob = 2,        // another job id
  kSecret = 3,     // no proof of this job's secret
  kDuplicate = 4,  // this node id is taken by a living process
  kProtocol = 5,   // not a valid greeting
  kAlready = 6,    // these two are linked by another connection
  kSelf = 7,       // the address is the dialler's own
  kClosing = 8,    // the node is about to end
};

class Handshake final : public FrameReader::Handler {
 public:
  enum class Role { kDialler, kAcceptor };
  enum class State { kRunning, kDone, kFailed };

  // `admit` is asked once the peer has proved itself, before it is welcomed: it may refuse, or
  // give what is known of that incarnation. Bytes to send are appended to the output.
  struct Verdict {
    RejectCode reject = RejectCode::kProtocol;
    std::string reason;  // empty: admitted
    Resume resume;
  };
  using Admit = std::function<Verdict(const Identity& peer)>;

  Handshake(Role role, Identity self, std::string secret, Admit admit);

  // The preamble comes before the frames; feed it first. Handles any eight bytes.
  Status on_preamble(std::span<const std::byte> bytes);

  // Bytes that are ready to be sent; the caller takes them.
  std::vector<std::byte> take_output();

  State state() const { return state_; }
  const Identity& peer() const { return peer_; }
  bool seen_hello() const { return seen_hello_; }
  const Resume& peer_resume() const { return peer_resume_; }
  // What the peer was told, if it was.
  const std::optional<Resume>& own_resume() const { return own_resume_; }
  bool rejected_by_peer() const { return rejected_by_peer_; }
  RejectCode reject_code() const { return reject_code_; }
  const Status& error() const { return error_; }

  bool done() const override { return state_ != State::kRunning; }
  std::size_t max_length(Kind kind) const override;
  Result<std::byte*> landing(const FrameHeader&, std::size_t, std::uint64_t) override;
  Status on_frame(const FrameHeader& header, std::span<const std::byte> content,
                  const Buffer& owner, bool landed) override;

 private:
  using Nonce = std::array<std::byte, 32>;

  Status on_hello(std::span<const std::byte> content);
  Status on_proof(std::span<const std::byte> content);
  Status on_welcome(std::span<const std::byte> content);
  Status on_reject(std::span<const std::byte> content);
  // `reason` goes to the peer, `own_reason` (if any) into our error: it may say more.
  Status reject(RejectCode code, std::string reason, std::string own_reason = {});
  Status check_peer_proof(std::span<const std::byte> proof);
  void send(Kind kind, std::span<const std::byte> body);
  void send_preamble();
  void send_hello();
  void send_proof();
  void send_admission(Kind kind, const Resume& resume);
  std::array<std::byte, 32> proof_of(Role role) const;

  const Role role_;
  const Identity self_;
  const std::string secret_;
  const Admit admit_;

  State state_ = State::kRunning;
  bool preamble_sent_ = false;
  bool seen_hello_ = false;
  bool proof_sent_ = false;
  bool peer_proved_ = false;
  Identity peer_;
  Resume peer_resume_;
  std::optional<Resume> own_resume_;
  bool peer_has_secret_ = false;
  Nonce nonce_{};
  Nonce peer_nonce_{};
  bool rejected_by_peer_ = false;
  RejectCode reject_code_ = RejectCode::kProtocol;
  Status error_;
  std::vector<std::byte> output_;
};

}  // namespace divisi::mesh
