// Length-prefixed frames over a Unix or loopback TCP stream socket.
//
// Small messages are copied into one buffer and leave together; a large message
// leaves at once, behind whatever is buffered, in a single writev() and without
// a copy. The reader takes as much as the kernel has and parses frames in place.
//
// The read buffer starts on a page and a large frame's header is 64 bytes, so
// that a stream of large frames keeps to multiples of 64: the kernel copies with
// `rep movsb` where it can, and a target 1 to 63 bytes ahead of the source modulo
// a page halves the rate (see bench_limits.cc; malloc's usual 16 is such a target).
#include "endpoint.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace divisi::bench {
namespace {

constexpr std::size_t kBatchBytes = 64 * 1024;
constexpr std::size_t kCopyBelow = 8 * 1024;
constexpr std::size_t kReadBytes = 256 * 1024;
constexpr std::size_t kPage = 4096;

std::size_t header_bytes(std::size_t length) {
  return length < kCopyBelow ? 4 : 64;
}

// A block of bytes that starts on a page and keeps its contents as it grows.
class PageBuffer {
 public:
  explicit PageBuffer(std::size_t size) { grow(size); }
  std::byte* data() { return data_.get(); }
  std::size_t size() const { return size_; }
  void grow(std::size_t size) {
    size = (size + kPage - 1) / kPage * kPage;
    std::unique_ptr<std::byte, decltype(&std::free)> grown(
        static_cast<std::byte*>(std::aligned_alloc(kPage, size)), &std::free);
    if (size_ > 0) std::memcpy(grown.get(), data_.get(), size_);
    data_ = std::move(grown);
    size_ = size;
  }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> data_{nullptr, &std::free};
  std::size_t size_ = 0;
};

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un addr{};
  addr.sun_family = AF_UNIX;
  if (path.size() >= sizeof addr.sun_path) fail("socket path too long");
  std::memcpy(addr.sun_path, path.data(), path.size());
  return addr;
}

sockaddr_in tcp_address(int port) {
  sockaddr_in addr{};
  addr.sin_family = AF_INET;
  addr.sin_port = htons(static_cast<std::uint16_t>(port));
  addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return addr;
}

template <class Address>
int open_stream(int family, const Address& addr, Side side) {
  const auto* sa = reinterpret_cast<const sockaddr*>(&addr);
  if (side == Side::kServer) {
    int listener = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (::bind(listener, sa, sizeof addr) != 0 || ::listen(listener, 1) != 0) fail("bind/listen");
    int fd = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    if (fd < 0) fail("accept");
    return fd;
  }
  for (int attempt = 0; attempt < 500; ++attempt) {
    int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, sa, sizeof addr) == 0) return fd;
    ::close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fail("connect");
}

class RawSocket final : public ByteEndpoint {
 public:
  RawSocket(int fd, bool batch, std::size_t size)
      : ByteEndpoint(size), fd_(fd), batch_(batch), in_(kReadBytes) {
    out_.reserve(kBatchBytes + kCopyBelow + 64);
    const int kernel_buffer = 1 << 20;
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &kernel_buffer, sizeof kernel_buffer);
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &kernel_buffer, sizeof kernel_buffer);
    int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // no-op on AF_UNIX
  }
  ~RawSocket() override { ::close(fd_); }

  void flush() override {
    if (!out_.empty()) write_out({});
  }

 private:
  void send_bytes(Bytes message) override {
    std::byte header[64] = {};
    const auto length = static_cast<std::uint32_t>(message.size());
    std::memcpy(header, &length, sizeof length);
    append(header, header_bytes(length));
    if (batch_ && message.size() < kCopyBelow) {
      append(message.data(), message.size());
      if (out_.size() >= kBatchBytes) flush();
    } else {
      write_out(message);
    }
  }

  Bytes receive_bytes() override {
    begin_ += last_;
    last_ = 0;
    if (!fill(sizeof(std::uint32_t))) return {};
    std::uint32_t length;
    std::memcpy(&length, in_.data() + begin_, sizeof length);
    const std::size_t header = header_bytes(length);
    if (!fill(header + length)) return {};
    begin_ += header;
    last_ = length;
    return {in_.data() + begin_, length};
  }

  void append(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), bytes, bytes + size);
  }

  // Writes the buffered bytes, then `tail`, whole.
  void write_out(Bytes tail) {
    iovec parts[2] = {{out_.data(), out_.size()},
                      {const_cast<std::byte*>(tail.data()), tail.size()}};
    std::size_t left = out_.size() + tail.size();
    while (left > 0) {
      ssize_t n = ::writev(fd_, parts, 2);
      if (n < 0) fail("writev");
      left -= static_cast<std::size_t>(n);
      for (auto& part : parts) {
        const auto taken = std::min(static_cast<std::size_t>(n), part.iov_len);
        part.iov_base = static_cast<char*>(part.iov_base) + taken;
        part.iov_len -= taken;
        n -= static_cast<ssize_t>(taken);
      }
    }
    out_.clear();
  }

  // Makes `need` bytes readable at begin_; false at end of stream.
  bool fill(std::size_t need) {
    if (end_ - begin_ >= need) return true;
    if (begin_ > 0) {
      std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (in_.size() < need) in_.grow(need);
    while (end_ < need) {
      const ssize_t n = ::read(fd_, in_.data() + end_, in_.size() - end_);
      if (n <= 0) return false;
      end_ += static_cast<std::size_t>(n);
    }
    return true;
  }

  int fd_;
  bool batch_;
  std::vector<std::byte> out_;
  PageBuffer in_;
  std::size_t begin_ = 0;  // first unread byte of in_
  std::size_t end_ = 0;    // one past the last byte of in_
  std::size_t last_ = 0;   // length of the message handed out by receive_bytes()
};

}  // namespace

std::unique_ptr<Endpoint> make_raw_socket(bool tcp, bool batch, Side side, std::size_t size,
                                          const std::string& address) {
  if (tcp) {
    return std::make_unique<RawSocket>(
        open_stream(AF_INET, tcp_address(tcp_port(address, 0)), side), batch, size);
  }
  const auto path = ipc_path(address, "raw");
  auto endpoint =
      std::make_unique<RawSocket>(open_stream(AF_UNIX, unix_address(path), side), batch, size);
  if (side == Side::kServer) ::unlink(path.c_str());
  return endpoint;
}

}  // namespace divisi::bench
