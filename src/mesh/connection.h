// Connection: one socket to a peer, from the greeting to the end. Loop only.
#pragma once

#include "io/reactor.h"
#include "mesh/frame_reader.h"
#include "mesh/handshake.h"
#include "mesh/link.h"
#include "mesh/node.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::mesh {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `dialer` is null for an accepted connection.
  Connection(Node& node, std::shared_ptr<io::Stream> stream, std::shared_ptr<Node::Dialer> dialer,
             std::uint64_t number);

  void start();

  // Closes without a word. The node is not told.
  void close();

  // Lets the peer read what was written, then closes: at its end, or after a second.
  void linger();

  bool dialled() const { return dialer_ != nullptr; }
  bool open() const { return !closed_; }
  // The peer's address without its port; empty for a Unix socket.
  const std::string& source() const { return source_; }
  std::uint64_t number() const { return number_; }
  // The last attachment of any link when this connection was opened: of what the peer says in its
  // greeting we know only that it is not older.
  std::uint64_t opened_after() const { return opened_after_; }
  const std::shared_ptr<Node::Dialer>& dialer() const { return dialer_; }
  const std::shared_ptr<io::Stream>& stream() const { return stream_; }
  const Handshake& greeting() const { return *handshake_; }
  const FrameReader& reader() const { return reader_; }
  // Bytes of the greeting that the socket did not take yet.
  std::vector<std::byte> take_unsent() { return std::exchange(unsent_, {}); }

  void set_link(LinkPtr link) { link_ = std::move(link); }
  const LinkPtr& link() const { return link_; }

 private:
  bool on_readable();
  Status read_preamble(bool& complete);
  void send_greeting();
  void end(const Status& why);
  void greeting_moved();

  Node& node_;
  const std::shared_ptr<io::Stream> stream_;
  const std::shared_ptr<Node::Dialer> dialer_;
  const std::uint64_t number_;
  const std::uint64_t opened_after_;
  const std::string source_;

  FrameReader reader_;
  std::unique_ptr<Handshake> handshake_;
  std::vector<std::byte> preamble_;
  std::vector<std::byte> unsent_;
  std::unique_ptr<io::Timer> deadline_;
  LinkPtr link_;
  bool lingering_ = false;
  bool closed_ = false;
};

}  // namespace divisi::mesh
