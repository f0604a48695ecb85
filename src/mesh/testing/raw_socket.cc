#include "mesh/testing/raw_socket.h"

#include "io/address.h"

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace divisi::mesh::testing {

namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress to_native(const io::Address& address) {
  SocketAddress native;
  if (address.scheme == io::Address::Scheme::kIpc) {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    std::memcpy(local.sun_path, address.path.data(), address.path.size());
    if (address.path.starts_with('@')) local.sun_path[0] = '\0';
    std::memcpy(&native.storage, &local, sizeof local);
    native.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.path.size());
  } else {
    sockaddr_in inet{};
    inet.sin_family = AF_INET;
    inet.sin_port = htons(address.port);
    ::inet_pton(AF_INET, address.host.c_str(), &inet.sin_addr);
    std::memcpy(&native.storage, &inet, sizeof inet);
    native.size = sizeof inet;
  }
  return native;
}

io::Address parse(const std::string& text) {
  auto address = io::Address::parse(text);
  if (!address) throw std::runtime_error(address.error().message());
  return *std::move(address);
}

int checked(int result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": " + errno_text(errno));
  return result;
}

std::uint16_t port_of(int fd) {
  sockaddr_in inet{};
  socklen_t size = sizeof inet;
  checked(::getsockname(fd, reinterpret_cast<sockaddr*>(&inet), &size), "getsockname");
  return ntohs(inet.sin_port);
}

}  // namespace

int connect_to(const std::string& text, const std::string& source) {
  const SocketAddress native = to_native(parse(text));
  const int fd =
      checked(::socket(native.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  bool ready = true;
  if (!source.empty()) {
    const SocketAddress from = to_native(parse("tcp://" + source + ":0"));
    ready = ::bind(fd, from.get(), from.size) == 0;
  }
  if (!ready || ::connect(fd, native.get(), native.size) < 0) {
    const int error = errno;
    ::close(fd);
    throw std::runtime_error("connect to " + text + ": " + errno_text(error));
  }
  return fd;
}

int listen_like(const std::string& text, std::string& bound) {
  static std::atomic<int> n{0};
  io::Address address = parse(text);
  if (address.scheme == io::Address::Scheme::kIpc) address.path += "_like_" + std::to_string(n++);
  address.port = 0;
  SocketAddress native = to_native(address);
  const int fd =
      checked(::socket(native.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  checked(::bind(fd, native.get(), native.size), "bind");
  checked(::listen(fd, 16), "listen");
  if (address.scheme == io::Address::Scheme::kTcp) address.port = port_of(fd);
  bound = address.to_string();
  return fd;
}

Reserved::Reserved(const std::string& like) : address_(like) {
  io::Address address = parse(like);
  if (address.scheme == io::Address::Scheme::kIpc) return;  // a name is nobody else's anyway
  const SocketAddress native = to_native(address);
  fd_ = checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  // A port that is bound and not listened on refuses connections, is given to nobody who asks for
  // any port, and may be listened on by whoever asks for it with this option, as nodes do.
  const int one = 1;
  checked(::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "setsockopt");
  checked(::bind(fd_, native.get(), native.size), "bind");
  address.port = port_of(fd_);
  address_ = address.to_string();
}

Reserved::~Reserved() {
  if (fd_ >= 0) ::close(fd_);
}

RawSocket::~RawSocket() {
  ::close(fd_);
}

void RawSocket::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the peer has closed: what it said before is what the test looks at
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

std::vector<std::byte> RawSocket::read_some() {
  std::vector<std::byte> bytes(64 * 1024);
  const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

bool RawSocket::is_open() const {
  std::byte next{};
  return ::recv(fd_, &next, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

std::vector<std::byte> RawSocket::read_to_end() {
  std::vector<std::byte> all;
  for (auto part = read_some(); !part.empty(); part = read_some()) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace divisi::mesh::testing
