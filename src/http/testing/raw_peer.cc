#include "http/testing/raw_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace divisi::http::testing {

namespace {

constexpr timeval kPatience{.tv_sec = 60, .tv_usec = 0};

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

RawPeer::RawPeer(int fd) : fd_(fd) {
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
}

RawPeer RawPeer::connect(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  if (fd < 0) throw std::runtime_error("cannot make a socket");
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    throw std::runtime_error("cannot connect");
  }
  return RawPeer(fd);
}

RawPeer::RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RawPeer::~RawPeer() {
  if (fd_ >= 0) ::close(fd_);
}

bool RawPeer::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string RawPeer::read_some() {
  std::string bytes(64 << 10, '\0');
  const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) throw std::runtime_error("silence");
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

std::string RawPeer::read_until(std::string_view mark) {
  std::string all;
  while (all.find(mark) == std::string::npos) {
    const auto more = read_some();
    if (more.empty()) break;
    all += more;
  }
  return all;
}

std::string RawPeer::read_to_end() {
  std::string all;
  for (;;) {
    const auto more = read_some();
    if (more.empty()) return all;
    all += more;
  }
}

void RawPeer::shutdown_write() {
  ::shutdown(fd_, SHUT_WR);
}

void RawPeer::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(std::exchange(fd_, -1));
}

ScriptedServer::ScriptedServer(std::function<void(RawPeer&, int)> script)
    : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 16) != 0) {
    throw std::runtime_error("cannot listen");
  }
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this, script = std::move(script)] {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      RawPeer peer(fd);
      script(peer, connections_.fetch_add(1));
    }
  });
}

ScriptedServer::~ScriptedServer() {
  ::shutdown(listener_, SHUT_RDWR);  // wakes accept()
  thread_.join();
  ::close(listener_);
}

}  // namespace divisi::http::testing
