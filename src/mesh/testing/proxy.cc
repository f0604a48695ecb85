#include "mesh/testing/proxy.h"

#include "mesh/testing/raw_socket.h"

#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace divisi::mesh::testing {

Proxy::Proxy(std::string target)
    : target_(std::move(target)),
      listener_(listen_like(target_, address_)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { run(); }) {}

Proxy::~Proxy() {
  stopping_ = true;
  wake();
  thread_.join();
  close_all();
  ::close(listener_);
  ::close(event_);
}

void Proxy::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_, &one, sizeof one);
}

void Proxy::cut() {
  cut_now_ = true;
  wake();
}
void Proxy::cut_every(std::size_t bytes) {
  cut_every_ = bytes;
  wake();
}
void Proxy::stall(bool on) {
  stalled_ = on;
  wake();
}
void Proxy::swallow(bool on) {
  swallows_ = on;
  wake();
}

void Proxy::close_all() {
  for (const Pair& pair : pairs_) {
    ::close(pair.fds[0]);
    ::close(pair.fds[1]);
  }
  pairs_.clear();
}

void Proxy::accept_one() {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  int server = -1;
  try {
    server = connect_to(target_);
  } catch (const std::exception&) {
    ::close(client);  // the target is not there: neither are we
    return;
  }
  for (const int fd : {client, server}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  pairs_.push_back({{client, server}, {}, false});
}

void Proxy::flush(Pair& pair, int to) {
  auto& bytes = pair.towards[to];
  const ssize_t n = ::send(pair.fds[to], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && errno != EAGAIN) {
    pair.ended = true;
    bytes.clear();
  }
  if (n > 0) bytes.erase(bytes.begin(), bytes.begin() + n);
}

void Proxy::move(Pair& pair, int from) {
  std::byte bytes[16 * 1024];
  const ssize_t n = ::recv(pair.fds[from], bytes, sizeof bytes, MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN)) pair.ended = true;
  if (n <= 0 || swallows_) return;
  auto& out = pair.towards[1 - from];
  std::size_t size = static_cast<std::size_t>(n);
  passed_ += size;
  const std::size_t limit = cut_every_;
  if (limit > 0 && passed_ >= limit) {
    size -= std::min(size, passed_ - limit);  // cut at exactly this byte
    passed_ = 0;
    cut_now_ = true;
  }
  out.insert(out.end(), bytes, bytes + size);
  if (!out.empty()) flush(pair, 1 - from);
}

void Proxy::run() {
  while (!stopping_) {
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}, {event_, POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      for (int i = 0; i < 2; ++i) {
        const bool may_read = !stalled_ && !pair.ended && pair.towards[1 - i].empty();
        const int events = (may_read ? POLLIN : 0) | (pair.towards[i].empty() ? 0 : POLLOUT);
        // A descriptor that is not waited for would still report that its peer is gone.
        polled.push_back({events == 0 ? -1 : pair.fds[i], static_cast<short>(events), 0});
      }
    }
    ::poll(polled.data(), polled.size(), -1);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(event_, &count, sizeof count);
    std::size_t at = 2;
    for (Pair& pair : pairs_) {
      for (int i = 0; i < 2; ++i, ++at) {
        if ((polled[at].revents & POLLOUT) != 0) flush(pair, i);
        const bool readable = (polled[at].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
        if (readable && (polled[at].events & POLLIN) != 0) move(pair, i);
      }
    }
    for (auto pair = pairs_.begin(); pair != pairs_.end();) {
      const bool flushed = pair->towards[0].empty() && pair->towards[1].empty();
      if (!pair->ended || !flushed || swallows_) {
        ++pair;
        continue;
      }
      ::close(pair->fds[0]);
      ::close(pair->fds[1]);
      pair = pairs_.erase(pair);
    }
    if (cut_now_.exchange(false)) {
      cuts_ += pairs_.empty() ? 0 : 1;
      close_all();
    }
    if ((polled[0].revents & POLLIN) != 0) accept_one();
  }
}

}  // namespace divisi::mesh::testing
