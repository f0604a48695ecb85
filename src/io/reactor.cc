#include "io/reactor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"

namespace divisi::io {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The kernel's own default of some 200 KB makes a writer of large messages wait four times as
// often; beyond a megabyte nothing is gained.
constexpr int kSocketBuffer = 1 << 20;

void tune(int fd, bool tcp) {
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof kSocketBuffer);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof kSocketBuffer);
  const int one = 1;
  if (tcp) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

class SocketStream final : public Stream, public std::enable_shared_from_this<SocketStream> {
 public:
  SocketStream(asio::io_context& loop, int fd) : descriptor_(loop, fd), fd_(fd) {
    descriptor_.non_blocking(true);
  }

  void start_reading(std::function<bool()> on_readable) override {
    on_readable_ = std::move(on_readable);
    wait_readable();
  }

  void wait_writable(std::function<void()> on_writable) override {
    descriptor_.async_wait(asio::posix::descriptor_base::wait_write,
                           [self = shared_from_this(), run = std::move(on_writable)](error_code e) {
                             if (!e && !self->closed_) run();
                           });
  }

  ssize_t read(std::span<const iovec> parts) override {
    const ssize_t n = ::readv(fd_, parts.data(), static_cast<int>(parts.size()));
    return n < 0 ? -errno : n;
  }

  ssize_t write(std::span<const iovec> parts) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? -errno : n;
  }

  void shutdown_write() override { ::shutdown(fd_, SHUT_WR); }

  // The descriptor itself is closed with the last handle, so that a write on another thread can
  // never hit a number that already belongs to somebody else.
  void close() override {
    if (std::exchange(closed_, true)) return;
    on_readable_ = nullptr;
    ::shutdown(fd_, SHUT_RDWR);
    error_code ignored;
    descriptor_.cancel(ignored);
  }

 private:
  void wait_readable() {
    descriptor_.async_wait(asio::posix::descriptor_base::wait_read,
                           [self = shared_from_this()](error_code e) {
                             if (e || self->closed_) return;
                             // A copy: the callback may close the stream and with it itself.
                             const auto run = self->on_readable_;
                             if (run && run() && !self->closed_) self->wait_readable();
                           });
  }

  asio::posix::stream_descriptor descriptor_;
  const int fd_;
  std::function<bool()> on_readable_;  // loop
  bool closed_ = false;                // loop
};

template <class Protocol>
class SocketListener final : public Listener {
 public:
  using Acceptor = typename Protocol::acceptor;
  using OnAccept = std::function<void(std::shared_ptr<Stream>)>;

  // Shared with the pending accept, which may still be queued on the loop when we go.
  struct State : std::enable_shared_from_this<State> {
    State(asio::io_context& io, Acceptor bound, OnAccept accepted)
        : loop(io), acceptor(std::move(bound)), on_accept(std::move(accepted)) {}

    void accept() {
      acceptor.async_accept([self = this->shared_from_this()](error_code e,
                                                              typename Protocol::socket socket) {
        if (self->closed.load()) return;
        if (!e) {
          tune(socket.native_handle(), std::is_same_v<Protocol, asio::ip::tcp>);
          self->on_accept(std::make_shared<SocketStream>(self->loop, socket.release()));
        } else if (e == asio::error::operation_aborted) {
          return;
        } else {
          // Out of descriptors, most likely: a pause keeps the loop from spinning on it.
          log::warning("accept failed: {}; trying again in 100 ms", e.message());
          self->pause.expires_after(std::chrono::milliseconds(100));
          self->pause.async_wait([self](error_code stopped) {
            if (!stopped && !self->closed.load()) self->accept();
          });
          return;
        }
        self->accept();
      });
    }

    asio::io_context& loop;
    Acceptor acceptor;
    OnAccept on_accept;
    asio::steady_timer pause{loop};
    std::atomic<bool> closed{false};  // set by the destructor, read on the loop
  };

  SocketListener(asio::io_context& loop, Acceptor acceptor, Address address, OnAccept on_accept)
      : state_(std::make_shared<State>(loop, std::move(acceptor), std::move(on_accept))),
        address_(std::move(address)) {
    asio::post(loop, [state = state_] { state->accept(); });
  }

  ~SocketListener() override {
    state_->closed.store(true);
    asio::post(state_->loop, [state = state_] {
      error_code ignored;
      state->acceptor.close(ignored);
      state->pause.cancel();
    });
    if (address_.scheme == Address::Scheme::kIpc && !address_.path.starts_with('@')) {
      ::unlink(address_.path.c_str());
    }
  }

  Address address() const override { return address_; }

 private:
  std::shared_ptr<State> state_;
  Address address_;
};

asio::local::stream_protocol::endpoint local_endpoint(const std::string& path) {
  if (!path.starts_with('@')) return {path};
  std::string name = path;
  name[0] = '\0';
  return {name};
}

class AsioTimer final : public Timer {
 public:
  AsioTimer(asio::io_context& loop, Duration delay, std::function<void()> work)
      : alive_(std::make_shared<bool>(true)), timer_(loop, delay) {
    timer_.async_wait([alive = std::weak_ptr(alive_), run = std::move(work)](error_code e) {
      if (!e && !alive.expired()) run();
    });
  }

 private:
  std::shared_ptr<bool> alive_;  // expires with the timer: a queued expiry then does nothing
  asio::steady_timer timer_;
};

// One attempt to connect: resolve, then try each endpoint until the time is up.
class DialOperation : public std::enable_shared_from_this<DialOperation> {
 public:
  using OnDone = std::function<void(Result<std::shared_ptr<Stream>>)>;

  DialOperation(asio::io_context& loop, Address where, OnDone on_done)
      : loop_(loop), where_(std::move(where)), on_done_(std::move(on_done)), resolver_(loop),
        tcp_(loop), local_(loop), deadline_(loop) {}

  void start(Duration timeout) {
    deadline_.expires_after(timeout);
    deadline_.async_wait([self = shared_from_this()](error_code e) {
      if (!e) self->finish(failure(Code::kTimeout, "no answer from {}", self->where_.to_string()));
    });
    if (where_.scheme == Address::Scheme::kIpc) {
      local_.async_connect(local_endpoint(where_.path), [self = shared_from_this()](error_code e) {
        self->connected(e, self->local_);
      });
      return;
    }
    resolver_.async_resolve(where_.host, std::to_string(where_.port),
                            asio::ip::tcp::resolver::numeric_service,
                            [self = shared_from_this()](error_code e, auto endpoints) {
                              if (e) return self->fail("cannot resolve", e);
                              self->endpoints_.assign(endpoints.begin(), endpoints.end());
                              self->next_endpoint({});
                            });
  }

  void cancel() {
    on_done_ = nullptr;
    close();
  }

 private:
  void next_endpoint(error_code last) {
    if (!on_done_) return;
    if (endpoints_.empty()) return fail("cannot reach", last);
    const auto endpoint = endpoints_.front();
    endpoints_.erase(endpoints_.begin());
    error_code ignored;
    tcp_.close(ignored);
    tcp_.async_connect(endpoint, [self = shared_from_this()](error_code e) {
      if (e && e != asio::error::operation_aborted) return self->next_endpoint(e);
      self->connected(e, self->tcp_);
    });
  }

  template <class Socket>
  void connected(error_code e, Socket& socket) {
    if (!on_done_) return;
    if (e) return fail("cannot reach", e);
    tune(socket.native_handle(), where_.scheme == Address::Scheme::kTcp);
    finish(std::static_pointer_cast<Stream>(std::make_shared<SocketStream>(loop_, socket.release())));
  }

  void fail(const char* what, error_code e) {
    finish(failure(Code::kUnavailable, "{} {}: {}", what, where_.to_string(), e.message()));
  }

  void finish(Result<std::shared_ptr<Stream>> result) {
    if (const auto run = std::exchange(on_done_, nullptr)) {
      close();
      run(std::move(result));
    }
  }

  void close() {
    error_code ignored;
    deadline_.cancel();
    resolver_.cancel();
    tcp_.close(ignored);
    local_.close(ignored);
  }

  asio::io_context& loop_;
  const Address where_;
  OnDone on_done_;
  asio::ip::tcp::resolver resolver_;
  asio::ip::tcp::socket tcp_;
  asio::local::stream_protocol::socket local_;
  asio::steady_timer deadline_;
  std::vector<asio::ip::tcp::endpoint> endpoints_;
};

class DialHandle final : public Timer {
 public:
  explicit DialHandle(std::shared_ptr<DialOperation> operation) : operation_(std::move(operation)) {}
  ~DialHandle() override { operation_->cancel(); }

 private:
  std::shared_ptr<DialOperation> operation_;
};

// Two threads take turns at being the loop. The one that has it waits for the kernel and runs
// handlers; when a turn produced callbacks to run it lets go of the loop first, which wakes the
// other, and runs them itself. So an event meets its callback on the thread the kernel woke, and a
// callback that blocks holds up nobody's input.
class AsioReactor final : public Reactor {
 public:
  AsioReactor() : loop_(1), work_(loop_.get_executor()) {
    for (auto& thread : threads_) {
      thread = std::thread([this] { run(); });
    }
  }

  ~AsioReactor() override {
    asio::post(loop_, [this] { stopping_ = true; });
    for (auto& thread : threads_) thread.join();
  }

  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  void post(std::function<void()> work) override { asio::post(loop_, std::move(work)); }

  void run_on_loop(std::function<void()> work) override {
    std::promise<void> done;
    asio::post(loop_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  std::unique_ptr<Timer> after(Duration delay, std::function<void()> work) override {
    return std::make_unique<AsioTimer>(loop_, delay, std::move(work));
  }

  Result<std::unique_ptr<Listener>> listen(
      const Address& where, std::function<void(std::shared_ptr<Stream>)> on_accept) override;

  std::unique_ptr<Timer> dial(
      const Address& where, Duration timeout,
      std::function<void(Result<std::shared_ptr<Stream>>)> on_done) override {
    auto operation = std::make_shared<DialOperation>(loop_, where, std::move(on_done));
    operation->start(timeout);
    return std::make_unique<DialHandle>(std::move(operation));
  }

  void hand_off(std::function<void()> work, std::function<void()> otherwise) override {
    handed_off_.push_back({std::move(work), std::move(otherwise)});
  }

 private:
  struct HandedOff {
    std::function<void()> work, otherwise;
  };

  void run();

  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::mutex leader_;                  // held by the thread that is the loop
  std::atomic<int> waiting_{0};        // threads that want to be the loop
  std::vector<HandedOff> handed_off_;  // loop
  bool stopping_ = false;              // loop
  std::thread threads_[2];
};

void AsioReactor::run() {
  const auto lead = [this] {
    waiting_.fetch_add(1);
    std::unique_lock lock(leader_);
    waiting_.fetch_sub(1);
    return lock;
  };
  auto leading = lead();
  while (!stopping_) {
    loop_.run_one();
    if (handed_off_.empty()) continue;
    auto mine = std::exchange(handed_off_, {});
    if (waiting_.load() == 0 || stopping_) {
      for (auto& item : mine) item.otherwise();
      continue;
    }
    leading.unlock();
    mine.front().work();
    for (std::size_t i = 1; i < mine.size(); ++i) mine[i].otherwise();
    mine.clear();
    leading = lead();
  }
}

Result<std::unique_ptr<Listener>> AsioReactor::listen(
    const Address& where, std::function<void(std::shared_ptr<Stream>)> on_accept) {
  const auto refuse = [&](const std::string& reason) {
    return failure(Code::kUnavailable, "cannot listen on {}: {}", where.to_string(), reason);
  };
  error_code e;
  if (where.scheme == Address::Scheme::kIpc) {
    using Protocol = asio::local::stream_protocol;
    Protocol::acceptor acceptor(loop_);
    acceptor.open(Protocol(), e);
    if (!e) acceptor.bind(local_endpoint(where.path), e);
    if (!e) acceptor.listen(asio::socket_base::max_listen_connections, e);
    if (e) return refuse(e.message());
    return std::make_unique<SocketListener<Protocol>>(loop_, std::move(acceptor), where,
                                                      std::move(on_accept));
  }
  using Protocol = asio::ip::tcp;
  asio::ip::tcp::resolver resolver(loop_);
  const auto endpoints = resolver.resolve(where.host, std::to_string(where.port),
                                          asio::ip::tcp::resolver::passive, e);
  if (e || endpoints.empty()) return refuse(e ? e.message() : "no such host");
  const auto endpoint = endpoints.begin()->endpoint();
  Protocol::acceptor acceptor(loop_);
  acceptor.open(endpoint.protocol(), e);
  if (!e) acceptor.set_option(asio::socket_base::reuse_address(true), e);
  if (!e) acceptor.bind(endpoint, e);
  if (!e) acceptor.listen(asio::socket_base::max_listen_connections, e);
  if (e == asio::error::address_in_use) {
    return refuse("the port is in use by another process; choose another with --ports");
  }
  if (e == asio::error::address_family_not_supported || e.value() == EADDRNOTAVAIL) {
    return refuse("this machine has no such address");
  }
  if (e) return refuse(e.message());
  Address bound = where;
  bound.port = acceptor.local_endpoint(e).port();
  return std::make_unique<SocketListener<Protocol>>(loop_, std::move(acceptor), bound,
                                                    std::move(on_accept));
}

}  // namespace

std::unique_ptr<Reactor> make_reactor() { return std::make_unique<AsioReactor>(); }

}  // namespace divisi::io
