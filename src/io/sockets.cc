// Streams, listeners and dialling of the EpollReactor.
#include "base/log.h"
#include "io/epoll_reactor.h"
#include "io/lookup_threads.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace divisi::io {

namespace {

// The kernel's own default of some 200 KB makes a writer of large messages wait four times as
// often; beyond a megabyte nothing is gained.
constexpr int kSocketBuffer = 1 << 20;

constexpr int kBacklog = 1024;
constexpr int kAcceptsPerTurn = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// A socket address of either kind.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

Endpoint local_endpoint(const std::string& path) {
  Endpoint endpoint;
  auto& local = reinterpret_cast<sockaddr_un&>(endpoint.storage);
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path, path.data(), std::min(path.size(), sizeof local.sun_path - 1));
  // An abstract name starts with a zero and is as long as it is; a path ends with one.
  const bool abstract = path.starts_with('@');
  if (abstract) local.sun_path[0] = '\0';
  endpoint.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  return endpoint;
}

// May block in a name server unless `numeric`.
Result<std::vector<Endpoint>> resolve(const Address& where, bool numeric, bool passive) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0) | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const std::string port = std::to_string(where.port);
  const int error = ::getaddrinfo(where.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return failure(Code::kUnavailable, "cannot resolve {}: {}", where.to_string(),
                   ::gai_strerror(error));
  }
  std::vector<Endpoint> endpoints;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, each->ai_addr, each->ai_addrlen);
    endpoint.size = each->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(found);
  return endpoints;
}

int open_socket(int family) {
  return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

void tune(int fd) {
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof kSocketBuffer);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof kSocketBuffer);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // nothing on a Unix socket
}

// "127.0.0.1:41234"; empty for a Unix socket.
std::string peer_name(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return {};
  if (name.ss_family != AF_INET && name.ss_family != AF_INET6) return {};
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&name), size, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  const bool brackets = name.ss_family == AF_INET6;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", host, brackets ? "]" : "", port);
}

// Sent data must be acknowledged within `time` (TCP_USER_TIMEOUT); where none is sent, probes find
// out (keepalive), which the kernel times in whole seconds.
void tune_dead_after(int fd, Duration time) {
  const auto milliseconds =
      static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
  const int interval = std::max(1, milliseconds / 4000);
  constexpr int kOn = 1;
  constexpr int kProbes = 3;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

class SocketStream final : public Stream,
                           public EpollReactor::Watcher,
                           public std::enable_shared_from_this<SocketStream> {
 public:
  SocketStream(EpollReactor& reactor, int fd) : reactor_(reactor), fd_(fd) { tune(fd); }

  // Closed only here, so that a write on another thread can never hit a number that already
  // belongs to somebody else.
  ~SocketStream() override { ::close(fd_); }

  void start_reading(std::function<bool()> on_readable) override {
    on_readable_ = std::move(on_readable);
    update();
  }

  void wait_writable(std::function<void()> on_writable) override {
    on_writable_ = std::move(on_writable);
    update();
  }

  ssize_t read(std::span<const iovec> parts) override {
    const ssize_t n = ::readv(fd_, parts.data(), static_cast<int>(parts.size()));
    return n < 0 ? -errno : n;
  }

  ssize_t write(std::span<const iovec> parts) override {
    msghdr message{};
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): sendmsg only reads them
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? -errno : n;
  }

  void shutdown_write() override { ::shutdown(fd_, SHUT_WR); }

  void close() override {
    if (std::exchange(closed_, true)) return;
    on_readable_ = nullptr;
    on_writable_ = nullptr;
    if (id_ != 0) reactor_.unwatch(std::exchange(id_, 0), fd_);
    ::shutdown(fd_, SHUT_RDWR);
  }

  std::string peer() const override { return peer_name(fd_); }
  void set_dead_after(Duration time) override { tune_dead_after(fd_, time); }

  void on_event(std::uint32_t events) override {
    const bool ended = (events & (EPOLLERR | EPOLLHUP)) != 0;
    if ((events & EPOLLOUT) != 0 || ended) {
      if (const auto run = std::exchange(on_writable_, nullptr)) {
        update();
        run();
      }
    }
    if (((events & EPOLLIN) != 0 || ended) && !closed_) {
      const auto run = on_readable_;  // a copy: it may close the stream and with it itself
      if (run && !run() && !closed_) {
        on_readable_ = nullptr;
        update();
      }
      // An end that nobody reads would be reported for ever.
      if (!run && ended && !closed_) close();
    }
  }

 private:
  void update() {
    if (closed_) return;
    const std::uint32_t wanted = (on_readable_ ? std::uint32_t{EPOLLIN} : 0u) |
                                 (on_writable_ ? std::uint32_t{EPOLLOUT} : 0u);
    if (id_ == 0) {
      id_ = reactor_.watch(fd_, wanted, shared_from_this());
    } else if (wanted != watched_) {
      reactor_.change(id_, fd_, wanted);
    }
    watched_ = wanted;
  }

  EpollReactor& reactor_;
  const int fd_;
  // Loop only.
  std::function<bool()> on_readable_;
  std::function<void()> on_writable_;
  std::uint64_t id_ = 0;
  std::uint32_t watched_ = 0;
  bool closed_ = false;
};

// The listening socket, shared with the loop: its owner may go on another thread.
class Acceptor final : public EpollReactor::Watcher, public std::enable_shared_from_this<Acceptor> {
 public:
  using OnAccept = std::function<void(std::shared_ptr<Stream>)>;

  Acceptor(EpollReactor& reactor, int fd, OnAccept on_accept)
      : reactor_(reactor), fd_(fd), on_accept_(std::move(on_accept)) {}
  ~Acceptor() override { ::close(fd_); }

  void start() {
    if (!closed_.load()) id_ = reactor_.watch(fd_, EPOLLIN, shared_from_this());
  }

  // Any thread.
  void close() {
    closed_.store(true);
    reactor_.post([self = shared_from_this()]() mutable {
      self->pause_.reset();
      if (self->id_ != 0) self->reactor_.unwatch(std::exchange(self->id_, 0), self->fd_);
      self.reset();  // the next turn of the loop finds the address free
    });
  }

  void on_event(std::uint32_t) override {
    for (int i = 0; i < kAcceptsPerTurn && !closed_.load(); ++i) {
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        on_accept_(std::make_shared<SocketStream>(reactor_, fd));
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != ECONNABORTED && errno != EINTR) {
        // Out of descriptors, most likely: a pause keeps the loop from spinning on it.
        log::warning("accept failed: {}; trying again in 100 ms", errno_text(errno));
        reactor_.unwatch(std::exchange(id_, 0), fd_);
        pause_ = reactor_.after(kAcceptPause, [this] { start(); });
        return;
      }
    }
  }

 private:
  EpollReactor& reactor_;
  const int fd_;
  const OnAccept on_accept_;
  std::atomic<bool> closed_{false};  // set by close(), read on the loop
  std::uint64_t id_ = 0;             // loop
  std::unique_ptr<Timer> pause_;     // loop
};

class SocketListener final : public Listener {
 public:
  SocketListener(std::shared_ptr<Acceptor> acceptor, Address address)
      : acceptor_(std::move(acceptor)), address_(std::move(address)) {}
  ~SocketListener() override {
    acceptor_->close();
    if (address_.scheme == Address::Scheme::kIpc && !address_.path.starts_with('@')) {
      ::unlink(address_.path.c_str());
    }
  }
  Address address() const override { return address_; }

 private:
  const std::shared_ptr<Acceptor> acceptor_;
  const Address address_;
};

// One attempt to connect: each endpoint in turn until one answers or the time is up. Loop only.
class Dial final : public EpollReactor::Watcher, public std::enable_shared_from_this<Dial> {
 public:
  using OnDone = std::function<void(Result<std::shared_ptr<Stream>>)>;

  Dial(EpollReactor& reactor, Address where, OnDone on_done)
      : reactor_(reactor), where_(std::move(where)), on_done_(std::move(on_done)) {}
  ~Dial() override { drop_socket(); }

  void start(Duration timeout) {
    until_ = reactor_.now() + timeout;
    deadline_ = reactor_.after(timeout, [this] {
      finish(failure(Code::kTimeout, "no answer from {}", where_.to_string()));
    });
    if (where_.scheme == Address::Scheme::kIpc) {
      return later([this] { try_endpoints({local_endpoint(where_.path)}); });
    }
    if (auto numeric = resolve(where_, true, false)) {
      return later([this, found = *std::move(numeric)] { try_endpoints(found); });
    }
    // A name server may take long, and this dial may be over before its turn comes.
    const Status looked_up = LookupThreads::instance().run(
        [weak = weak_from_this(), where = where_, &reactor = reactor_] {
          if (weak.expired()) return;
          auto found = resolve(where, false, false);
          auto alive = weak.lock();
          if (!alive) return;
          reactor.post([alive = std::move(alive), found = std::move(found)] {
            if (!found) return alive->finish(failure(found.error()));
            alive->try_endpoints(*found);
          });
        });
    if (!looked_up.ok()) {
      later([this, why = looked_up] {
        finish(failure(why.with_context("dialling " + where_.to_string())));
      });
    }
  }

  void cancel() {
    on_done_ = nullptr;
    deadline_.reset();
    drop_socket();
  }

  void on_event(std::uint32_t) override {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return connected();
    drop_socket();
    next(error);
  }

 private:
  // The caller of dial() must have the handle before anything happens.
  template <class Work>
  void later(Work work) {
    reactor_.post([weak = weak_from_this(), work = std::move(work)] {
      if (const auto self = weak.lock(); self && self->on_done_) work();
    });
  }

  void try_endpoints(std::vector<Endpoint> endpoints) {
    if (!on_done_) return;
    endpoints_ = std::move(endpoints);
    next(EADDRNOTAVAIL);
  }

  void next(int last_error) {
    while (on_done_ && !endpoints_.empty()) {
      const Endpoint endpoint = endpoints_.front();
      endpoints_.erase(endpoints_.begin());
      fd_ = open_socket(endpoint.family());
      if (fd_ < 0) {
        last_error = errno;
        continue;
      }
      if (::connect(fd_, endpoint.get(), endpoint.size) == 0) return connected();
      if (errno == EINPROGRESS) {
        id_ = reactor_.watch(fd_, EPOLLOUT, shared_from_this());
        // An address that swallows everything leaves the others their share of the time.
        if (endpoints_.empty()) return;
        const auto share = (until_ - reactor_.now()) / (endpoints_.size() + 1);
        patience_ = reactor_.after(share, [this] {
          drop_socket();
          next(ETIMEDOUT);
        });
        return;
      }
      last_error = errno;
      drop_socket();
    }
    finish(failure(Code::kUnavailable, "cannot reach {}: {}", where_.to_string(),
                   errno_text(last_error)));
  }

  void connected() {
    patience_.reset();
    if (id_ != 0) reactor_.unwatch(std::exchange(id_, 0), fd_);
    const int fd = std::exchange(fd_, -1);
    finish(std::static_pointer_cast<Stream>(std::make_shared<SocketStream>(reactor_, fd)));
  }

  void finish(Result<std::shared_ptr<Stream>> result) {
    const auto keep = shared_from_this();
    const auto run = std::exchange(on_done_, nullptr);
    deadline_.reset();
    drop_socket();
    if (run) run(std::move(result));
  }

  void drop_socket() {
    patience_.reset();
    if (id_ != 0) reactor_.unwatch(std::exchange(id_, 0), fd_);
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  EpollReactor& reactor_;
  const Address where_;
  OnDone on_done_;
  std::vector<Endpoint> endpoints_;
  TimePoint until_{};
  std::unique_ptr<Timer> deadline_;
  std::unique_ptr<Timer> patience_;  // with the endpoint that is tried
  int fd_ = -1;
  std::uint64_t id_ = 0;
};

class DialHandle final : public Timer {
 public:
  explicit DialHandle(std::shared_ptr<Dial> dial) : dial_(std::move(dial)) {}
  ~DialHandle() override { dial_->cancel(); }

 private:
  const std::shared_ptr<Dial> dial_;
};

std::string bind_error(int error) {
  if (error == EADDRINUSE) return "the address is in use by another process";
  if (error == EADDRNOTAVAIL) return "this machine has no such address";
  if (error == EACCES) return "permission denied";
  return errno_text(error);
}

// The file of a process that was killed stays behind; nobody answers on it any more.
bool remove_stale_file(const Address& where, const Endpoint& endpoint) {
  if (where.scheme != Address::Scheme::kIpc || where.path.starts_with('@')) return false;
  struct stat file{};
  if (::lstat(where.path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  const int probe = open_socket(AF_UNIX);
  if (probe < 0) return false;
  const bool refused =
      ::connect(probe, endpoint.get(), endpoint.size) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  return refused && ::unlink(where.path.c_str()) == 0;
}

}  // namespace

std::unique_ptr<Timer> EpollReactor::dial(
    const Address& where, Duration timeout,
    std::function<void(Result<std::shared_ptr<Stream>>)> on_done) {
  auto dial = std::make_shared<Dial>(*this, where, std::move(on_done));
  dial->start(timeout);
  return std::make_unique<DialHandle>(std::move(dial));
}

Result<std::unique_ptr<Listener>> EpollReactor::listen(
    const Address& where, std::function<void(std::shared_ptr<Stream>)> on_accept) {
  Endpoint endpoint;
  if (where.scheme == Address::Scheme::kIpc) {
    endpoint = local_endpoint(where.path);
  } else {
    auto endpoints = resolve(where, false, true);
    if (!endpoints) {
      return failure(endpoints.error().with_context("cannot listen"));
    }
    endpoint = endpoints->front();
  }
  const int fd = open_socket(endpoint.family());
  auto acceptor = std::make_shared<Acceptor>(*this, fd, std::move(on_accept));  // owns fd
  const int one = 1;
  if (where.scheme == Address::Scheme::kTcp) {
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  }
  int error = fd < 0 ? errno : 0;
  const auto bind_here = [&] {
    error = ::bind(fd, endpoint.get(), endpoint.size) == 0 ? 0 : errno;
  };
  if (error == 0) bind_here();
  if (error == EADDRINUSE && remove_stale_file(where, endpoint)) bind_here();
  if (error == 0 && ::listen(fd, kBacklog) != 0) error = errno;
  if (error != 0) {
    return failure(Code::kUnavailable, "cannot listen on {}: {}", where.to_string(),
                   bind_error(error));
  }
  Address bound = where;
  if (where.scheme == Address::Scheme::kTcp && where.port == 0) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
    bound.port =
        ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(name).sin_port);
  }
  post([acceptor] { acceptor->start(); });
  return std::make_unique<SocketListener>(std::move(acceptor), bound);
}

}  // namespace divisi::io
