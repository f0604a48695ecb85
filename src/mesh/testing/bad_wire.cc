#include "mesh/testing/bad_wire.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdexcept>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace divisi::mesh::testing {

namespace {

constexpr std::string_view kIpc = "ipc://";

struct Native {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Native unix_address(const std::string& path) {
  Native native;
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  if (path.size() >= sizeof local.sun_path) throw std::runtime_error("path too long: " + path);
  std::memcpy(local.sun_path, path.data(), path.size());
  native.size = sizeof local;
  if (path.starts_with('@')) {  // no file: the kernel wants a zero instead, and the exact length
    local.sun_path[0] = '\0';
    native.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  }
  std::memcpy(&native.storage, &local, sizeof local);
  return native;
}

Native tcp_address(int port) {
  Native native;
  sockaddr_in inet{};
  inet.sin_family = AF_INET;
  inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  inet.sin_port = htons(static_cast<std::uint16_t>(port));
  std::memcpy(&native.storage, &inet, sizeof inet);
  native.size = sizeof inet;
  return native;
}

Native parse(const std::string& address) {
  if (address.starts_with(kIpc)) return unix_address(address.substr(kIpc.size()));
  return tcp_address(std::stoi(address.substr(address.rfind(':') + 1)));
}

int open_socket(const Native& native, int flags) {
  const int fd = ::socket(native.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (fd < 0) throw std::runtime_error("the wire gets no socket");
  return fd;
}

}  // namespace

BadWire::BadWire(std::string target) : target_(std::move(target)) {
  const bool is_ipc = target_.starts_with(kIpc);
  Native native = is_ipc ? unix_address(target_.substr(kIpc.size()) + ".w") : tcp_address(0);
  listener_ = open_socket(native, SOCK_NONBLOCK);
  if (::bind(listener_, native.get(), native.size) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, native.get(), &native.size) != 0) {
    throw std::runtime_error("the wire cannot listen beside " + target_);
  }
  const auto* const inet = reinterpret_cast<const sockaddr_in*>(&native.storage);
  address_ = is_ipc ? target_ + ".w" : "tcp://127.0.0.1:" + std::to_string(ntohs(inet->sin_port));
  event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { run(); });
}

BadWire::~BadWire() {
  stopping_ = true;
  wake();
  thread_.join();
  close_all();
  ::close(listener_);
  ::close(event_);
  if (address_.starts_with(kIpc)) ::unlink(address_.substr(kIpc.size()).c_str());
}

void BadWire::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_, &one, sizeof one);
}

void BadWire::close_all() {
  for (const Pair& pair : pairs_) {
    ::close(pair.fds[0]);
    ::close(pair.fds[1]);
  }
  pairs_.clear();
}

void BadWire::accept_one() {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (client < 0) return;
  Native native = parse(target_);
  const int server = open_socket(native, 0);
  if (::connect(server, native.get(), native.size) != 0) {  // the target is not there: nor are we
    ::close(server);
    ::close(client);
    return;
  }
  ::fcntl(server, F_SETFL, O_NONBLOCK);
  pairs_.push_back({{client, server}, {}, false});
}

void BadWire::read(Pair& pair, int from) {
  std::vector<char> bytes(16 * 1024);
  const ssize_t n = ::recv(pair.fds[from], bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN)) pair.ended = true;
  if (n <= 0) return;
  auto size = static_cast<std::size_t>(n);
  if (swallows_) {
    swallowed_ += size;
    return;
  }
  passed_ += size;
  if (const std::size_t limit = cut_every_; limit > 0 && passed_ >= limit) {
    size -= std::min(size, passed_ - limit);
    passed_ = 0;
    cut_now_ = true;
  }
  bytes.resize(size);
  const auto delay = std::chrono::milliseconds(from == 0 ? delay_.load() : 0);
  pair.towards[1 - from].push_back({Clock::now() + delay, std::move(bytes), 0});
  write(pair, 1 - from);
}

void BadWire::write(Pair& pair, int to) {
  auto& parcels = pair.towards[to];
  while (!parcels.empty() && parcels.front().due <= Clock::now()) {
    Parcel& next = parcels.front();
    const ssize_t n = ::send(pair.fds[to], next.bytes.data() + next.written,
                             next.bytes.size() - next.written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {
      pair.ended = true;
      parcels.clear();
      return;
    }
    next.written += static_cast<std::size_t>(n);
    if (next.written == next.bytes.size()) parcels.pop_front();
  }
}

// The listener, the event, then both ends of every pair.
std::vector<pollfd> BadWire::poll_all() const {
  const std::size_t most = delay_ > 0 ? 256 : 1;  // parcels: what a slow wire holds
  std::vector<pollfd> polled = {{listener_, POLLIN, 0}, {event_, POLLIN, 0}};
  int timeout = -1;
  for (const Pair& pair : pairs_) {
    for (int i = 0; i < 2; ++i) {
      const bool may_read = !stalled_ && !pair.ended && pair.towards[1 - i].size() < most;
      const bool waits = !pair.towards[i].empty();
      const bool is_due = waits && pair.towards[i].front().due <= Clock::now();
      if (waits && !is_due) timeout = 1;
      const int events = (may_read ? POLLIN : 0) | (is_due ? POLLOUT : 0);
      // A descriptor that is not waited for would still report that its peer is gone.
      polled.push_back({events == 0 ? -1 : pair.fds[i], static_cast<short>(events), 0});
    }
  }
  ::poll(polled.data(), polled.size(), timeout);
  return polled;
}

void BadWire::close_ended() {
  std::erase_if(pairs_, [this](const Pair& pair) {
    const bool flushed = pair.towards[0].empty() && pair.towards[1].empty();
    if (!pair.ended || !flushed || swallows_) return false;
    ::close(pair.fds[0]);
    ::close(pair.fds[1]);
    return true;
  });
}

void BadWire::run() {
  while (!stopping_) {
    const std::vector<pollfd> polled = poll_all();
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(event_, &count, sizeof count);
    std::size_t at = 2;
    for (Pair& pair : pairs_) {
      for (int i = 0; i < 2; ++i, ++at) {
        write(pair, i);
        const bool readable = (polled[at].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
        if (readable && (polled[at].events & POLLIN) != 0) read(pair, i);
      }
    }
    close_ended();
    if (cut_requested_.exchange(false) || cut_now_) {
      cut_now_ = false;
      cuts_ += pairs_.empty() ? 0 : 1;
      close_all();
    }
    if ((polled[0].revents & POLLIN) != 0) accept_one();
  }
}

}  // namespace divisi::mesh::testing
