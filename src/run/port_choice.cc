#include "run/port_choice.h"

#include "io/crypto.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace divisi::run {
namespace {

Result<io::Descriptor> lock_number(int port) {
  io::Descriptor lock(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!lock) return failure(Code::kUnavailable, "making a socket: {}", errno_text(errno));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("divisi-run-port-{}", port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: begins with a 0
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(lock.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return failure(Code::kUnavailable, "port {} belongs to another job of divisi run", port);
  }
  return lock;
}

Status check_free(const std::string& host, int port) {
  const io::Descriptor tried(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return {};
  const int on = 1;  // as ditask does: ends of connections that were are no hindrance
  ::setsockopt(tried.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(tried.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return {};
  }
  return make_status(Code::kUnavailable, "port {} of {} is taken: {}", port, host,
                     errno_text(errno));
}

}  // namespace

Result<TakenPorts> take_ports(const std::vector<std::string>& hosts, int first, int count) {
  TakenPorts taken;
  taken.first = first;
  for (int port = first; port < first + count; ++port) {
    DIVISI_TRY(io::Descriptor lock, lock_number(port));
    taken.locks.push_back(std::move(lock));
    for (const std::string& host : hosts) {
      if (const Status status = check_free(host, port); !status.ok()) return failure(status);
    }
  }
  return taken;
}

Result<TakenPorts> take_any_ports(const std::vector<std::string>& hosts, int count) {
  // Below those that the kernel gives to outgoing connections.
  constexpr int kLowest = 20'000;
  constexpr int kNumbers = 12'000;
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    const int first = kLowest + static_cast<int>(io::random_u64() % kNumbers);
    if (auto taken = take_ports(hosts, first, count)) return taken;
  }
  return failure(Code::kUnavailable, "no {} free ports in a row were found", count);
}

}  // namespace divisi::run
