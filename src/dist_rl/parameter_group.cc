#include "dist_rl/parameter_group.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace divisi::dist_rl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kGreeting = 0x44495650;  // "DIVP"
constexpr int kMostRanks = 4096;
constexpr auto kDialPause = std::chrono::milliseconds(100);

struct Greeting {
  std::uint32_t magic = kGreeting;
  std::uint32_t rank = 0;
};

Result<std::int64_t> variable(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  if (text == nullptr || *text == '\0') return otherwise;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
  if (error != std::errc() || *end != '\0') {
    return failure(Code::kInvalid, "the variable {} is '{}': expected a whole number", name, text);
  }
  return number;
}

Status socket_failure(std::string_view what) {
  const int reason = errno;
  return make_status(Code::kUnavailable, "{}: {}", what, errno_text(reason));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> addresses_of(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    return failure(Code::kUnavailable, "looking up MASTER_ADDR {}: {}", host, ::gai_strerror(code));
  }
  return Addresses(list);
}

void send_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Result<io::Descriptor> listen_on(std::uint16_t port) {
  io::Descriptor listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const int off = 0;
  bool bound = false;
  if (listener) {
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    bound = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0;
  }
  if (!bound) {  // a machine without IPv6
    listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    bound = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0;
  }
  if (!bound || ::listen(listener.get(), kMostRanks) != 0) {
    return failure(socket_failure(fmt::format("listening on MASTER_PORT {}", port)));
  }
  return listener;
}

}  // namespace

Result<std::unique_ptr<ParameterGroup>> ParameterGroup::from_environment() {
  ParameterGroupOptions options;
  DIVISI_TRY(const std::int64_t size, variable("WORLD_SIZE", 1));
  DIVISI_TRY(const std::int64_t rank, variable("RANK", 0));
  DIVISI_TRY(const std::int64_t port, variable("MASTER_PORT", options.port));
  if (size <= 1) return std::unique_ptr<ParameterGroup>();
  if (size > kMostRanks || rank < 0 || rank >= size || port < 1 || port > 65'535) {
    return failure(Code::kInvalid,
                   "RANK={}, WORLD_SIZE={}, MASTER_PORT={}: expected a rank below the world's size "
                   "(at most {}), and a port",
                   rank, size, port, kMostRanks);
  }
  const char* master = std::getenv("MASTER_ADDR");  // NOLINT(concurrency-mt-unsafe): never set
  if (master != nullptr && *master != '\0') options.master = master;
  options.size = static_cast<int>(size);
  options.rank = static_cast<int>(rank);
  options.port = static_cast<std::uint16_t>(port);
  return std::make_unique<ParameterGroup>(std::move(options));
}

ParameterGroup::ParameterGroup(ParameterGroupOptions options) : options_(std::move(options)) {
  auto pipe = io::make_pipe();
  if (pipe) wake_ = *std::move(pipe);
}

Status ParameterGroup::join() {
  peers_.clear();
  const TimePoint deadline = Clock::now() + options_.patience;
  Status status = options_.rank == 0 ? accept_all(deadline) : connect_to_master(deadline);
  if (!status.ok()) peers_.clear();
  return status.with_context(fmt::format("rank {} of {}", options_.rank, options_.size));
}

Status ParameterGroup::accept_all(TimePoint deadline) {
  auto listener = listen_on(options_.port);
  if (!listener) return listener.error();
  peers_.resize(static_cast<std::size_t>(options_.size) - 1);
  for (int missing = options_.size - 1; missing > 0;) {
    Status status = accept_one(listener->get(), deadline);
    if (status.ok()) {
      --missing;
    } else if (status.code() != Code::kInvalid) {  // kInvalid: a stranger, who is sent away
      return make_status(status.code(), "{} other ranks did not come: {}", missing,
                         status.message());
    }
  }
  return {};
}

Status ParameterGroup::accept_one(int listener, TimePoint deadline) {
  DIVISI_TRY_STATUS(wait_for(listener, POLLIN, deadline));
  io::Descriptor peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!peer) return make_status(Code::kInvalid, "it went away");
  send_at_once(peer.get());
  Greeting greeting{.magic = 0};
  // A stranger that says nothing must not hold up the ranks behind it for long.
  const TimePoint soon = std::min(deadline, Clock::now() + std::chrono::seconds(5));
  Status heard = receive_all(peer.get(), std::as_writable_bytes(std::span(&greeting, 1)), soon);
  if (heard.code() == Code::kCancelled) return heard;
  const bool known = heard.ok() && greeting.magic == kGreeting && greeting.rank >= 1 &&
                     greeting.rank < static_cast<std::uint32_t>(options_.size);
  if (!known || peers_[greeting.rank - 1]) return make_status(Code::kInvalid, "not a rank");
  peers_[greeting.rank - 1] = std::move(peer);
  return {};
}

Status ParameterGroup::connect_to_master(TimePoint deadline) {
  while (true) {
    auto addresses = addresses_of(options_.master, options_.port);
    Status status = addresses ? Status() : addresses.error();
    for (const addrinfo* one = addresses ? addresses->get() : nullptr; one != nullptr;
         one = one->ai_next) {
      io::Descriptor peer(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!peer) continue;
      if (::connect(peer.get(), one->ai_addr, one->ai_addrlen) != 0 && errno != EINPROGRESS)
        continue;
      status = wait_for(peer.get(), POLLOUT, deadline);
      int reason = 0;
      socklen_t size = sizeof(reason);
      ::getsockopt(peer.get(), SOL_SOCKET, SO_ERROR, &reason, &size);
      if (!status.ok() || reason != 0) continue;
      send_at_once(peer.get());
      const Greeting greeting{.rank = static_cast<std::uint32_t>(options_.rank)};
      DIVISI_TRY_STATUS(send_all(peer.get(), std::as_bytes(std::span(&greeting, 1)), deadline));
      peers_.push_back(std::move(peer));
      return {};
    }
    if (status.code() == Code::kCancelled) return status;
    if (Clock::now() + kDialPause >= deadline) {
      return make_status(Code::kTimeout, "rank 0 cannot be reached at {}:{}", options_.master,
                         options_.port);
    }
    // Rank 0 may not listen yet. wait_for() on nothing is a pause that stop() ends.
    if (wait_for(-1, 0, Clock::now() + kDialPause).code() == Code::kCancelled) {
      return make_status(Code::kCancelled, "stopped");
    }
  }
}

Status ParameterGroup::average(std::span<float> parameters) {
  if (peers_.empty()) return make_status(Code::kClosed, "the ranks are not connected");
  const TimePoint deadline = Clock::now() + options_.patience;
  const auto exchange = [&]() -> Status {
    if (options_.rank != 0) {
      DIVISI_TRY_STATUS(send_all(peers_[0].get(), std::as_bytes(parameters), deadline));
      return receive_all(peers_[0].get(), std::as_writable_bytes(parameters), deadline);
    }
    std::vector<double> sum(parameters.begin(), parameters.end());
    std::vector<float> theirs(parameters.size());
    for (const io::Descriptor& peer : peers_) {
      DIVISI_TRY_STATUS(
          receive_all(peer.get(), std::as_writable_bytes(std::span(theirs)), deadline));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(theirs[i]);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      parameters[i] = static_cast<float>(sum[i] / options_.size);
    }
    for (const io::Descriptor& peer : peers_) {
      DIVISI_TRY_STATUS(send_all(peer.get(), std::as_bytes(parameters), deadline));
    }
    return {};
  };
  Status status = exchange();
  if (!status.ok()) peers_.clear();
  return status.with_context(fmt::format("averaging parameters, rank {}", options_.rank));
}

void ParameterGroup::leave() {
  peers_.clear();
  std::array<char, 64> rest{};
  pollfd ready{wake_.read.get(), POLLIN, 0};
  while (::poll(&ready, 1, 0) > 0 && ::read(wake_.read.get(), rest.data(), rest.size()) > 0) {
  }
}

void ParameterGroup::stop() {
  const char byte = 1;
  (void)!::write(wake_.write.get(), &byte, 1);
}

Status ParameterGroup::wait_for(int descriptor, short events, TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  std::array<pollfd, 2> watched{{{wake_.read.get(), POLLIN, 0}, {descriptor, events, 0}}};
  const int ready =
      ::poll(watched.data(), watched.size(), static_cast<int>(std::max<std::int64_t>(0, left)));
  if (watched[0].revents != 0) return make_status(Code::kCancelled, "stopped");
  if (ready > 0) return {};
  return make_status(Code::kTimeout, "another rank is too slow or gone");
}

Status ParameterGroup::send_all(int descriptor, std::span<const std::byte> bytes,
                                TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      DIVISI_TRY_STATUS(wait_for(descriptor, POLLOUT, deadline));
    } else {
      return socket_failure("another rank is gone");
    }
  }
  return {};
}

Status ParameterGroup::receive_all(int descriptor, std::span<std::byte> bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(descriptor, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      DIVISI_TRY_STATUS(wait_for(descriptor, POLLIN, deadline));
    } else if (got == 0) {
      return make_status(Code::kClosed, "another rank is gone");
    } else {
      return socket_failure("another rank is gone");
    }
  }
  return {};
}

}  // namespace divisi::dist_rl
