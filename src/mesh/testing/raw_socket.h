// RawSocket: a blocking socket to an address of ours, for peers that do not behave.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::mesh::testing {

// A connected socket, or a listening one and the address it got. Throw on failure.
int connect_to(const std::string& address,
               const std::string& source = "");  // of tcp: from that host
int listen_like(const std::string& address, std::string& bound);

// An address where nobody listens, kept from everybody but a node that is told of it. Of tcp: a
// port that was 0.
class Reserved {
 public:
  explicit Reserved(const std::string& like);
  ~Reserved();
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  const std::string& address() const { return address_; }

 private:
  std::string address_;
  int fd_ = -1;
};

class RawSocket {
 public:
  explicit RawSocket(const std::string& address, const std::string& source = "")
      : fd_(connect_to(address, source)) {}
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Some bytes; none at the end.
  std::vector<std::byte> read_some();
  // All that comes before the peer closes.
  std::vector<std::byte> read_to_end();
  // Whether the peer has neither closed it nor said anything so far.
  bool is_open() const;

 private:
  const int fd_;
};

}  // namespace divisi::mesh::testing
