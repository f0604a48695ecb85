#include "runtime/worker_channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace divisi::runtime {

namespace {

constexpr std::size_t kHeader = 5;  // kind, value
constexpr std::size_t kLongestText = 32 << 10;

}  // namespace

Result<std::pair<WorkerChannel, WorkerChannel>> WorkerChannel::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return failure(Code::kUnavailable, "making a socket pair for a worker: {}", errno_text(errno));
  }
  return std::pair(WorkerChannel(io::Descriptor(ends[0])), WorkerChannel(io::Descriptor(ends[1])));
}

void WorkerChannel::send(const WorkerReport& report) const noexcept {
  if (!socket_) return;
  std::array<char, kHeader + kLongestText> packet{};
  const std::size_t size = std::min(report.text.size(), kLongestText);
  packet[0] = static_cast<char>(report.kind);
  std::memcpy(&packet[1], &report.value, sizeof(report.value));
  std::memcpy(&packet[kHeader], report.text.data(), size);
  ssize_t sent = 0;
  do {
    sent = ::send(fd(), packet.data(), kHeader + size, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
}

std::optional<WorkerReport> WorkerChannel::receive(bool& ended) const {
  std::array<char, kHeader + kLongestText> packet{};
  ssize_t size = 0;
  do {
    size = ::recv(fd(), packet.data(), packet.size(), MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (size < static_cast<ssize_t>(kHeader)) {
    ended = true;
    return std::nullopt;
  }
  WorkerReport report;
  report.kind = static_cast<WorkerReport::Kind>(packet[0]);
  std::memcpy(&report.value, &packet[1], sizeof(report.value));
  report.text.assign(&packet[kHeader], static_cast<std::size_t>(size) - kHeader);
  return report;
}

}  // namespace divisi::runtime
