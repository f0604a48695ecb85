#include "runtime/topology.h"

#include "io/address.h"
#include "io/crypto.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <ifaddrs.h>
#include <limits>
#include <net/if.h>
#include <netinet/in.h>
#include <numeric>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace divisi::runtime {

namespace {

constexpr int kLargestPort = 65535;
constexpr std::string_view kIpcScheme = "ipc://";
constexpr std::time_t kYoungSocket = 10;  // seconds

// Drawn from the kernel, so a program that seeds its own generator does not make two launchers
// choose the same name.
std::string random_tag() {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::uint64_t bits = io::random_u64();
  std::string tag;
  for (int i = 0; i < 4; ++i, bits /= kAlphabet.size()) tag += kAlphabet[bits % kAlphabet.size()];
  return tag;
}

bool is_refused(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  const bool refused =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED;
  ::close(probe);
  return refused;
}

// Of a process that was killed together with its launcher, or was its own, the socket file stays.
// A young one may be of a process that is about to listen.
void remove_stale_sockets(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("ditask_") || !name.ends_with(".ipc")) continue;
    struct stat file{};
    if (::lstat(entry.path().c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) continue;
    if (file.st_uid != ::geteuid() || ::time(nullptr) - file.st_mtime < kYoungSocket) continue;
    if (is_refused(entry.path().string())) ::unlink(entry.path().c_str());
  }
}

std::string first_interface_address() {
  std::string found = "127.0.0.1";
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const bool usable = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address{};
    std::memcpy(&address, each->ifa_addr, sizeof address);
    char text[INET_ADDRSTRLEN] = "";
    if (::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text) == nullptr) continue;
    found = text;
    break;
  }
  ::freeifaddrs(all);
  return found;
}

bool exists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

}  // namespace

Result<Topology> parse_topology(std::string_view text) {
  if (text == "mesh") return Topology::kMesh;
  if (text == "star") return Topology::kStar;
  if (text == "alone") return Topology::kAlone;
  return failure(Code::kInvalid, "unknown topology '{}': choose mesh, star or alone", text);
}

Result<Protocol> parse_protocol(std::string_view text) {
  if (text == "ipc") return Protocol::kIpc;
  if (text == "tcp") return Protocol::kTcp;
  return failure(Code::kInvalid, "unknown protocol '{}': choose ipc or tcp", text);
}

std::string_view topology_name(Topology topology) {
  switch (topology) {
    case Topology::kMesh: return "mesh";
    case Topology::kStar: return "star";
    case Topology::kAlone: return "alone";
  }
  return "unknown";
}

std::string_view protocol_name(Protocol protocol) {
  return protocol == Protocol::kIpc ? "ipc" : "tcp";
}

std::vector<int> padding_param(const std::vector<int>& values, int n, int start) {
  if (values.size() > 1) return values;
  std::vector<int> padded(static_cast<std::size_t>(std::max(n, 0)));
  std::iota(padded.begin(), padded.end(), values.empty() ? start : values.front());
  return padded;
}

Result<std::vector<int>> pad_ports(const std::vector<int>& ports, int n) {
  std::vector<int> padded = padding_param(ports, n, kFirstPort);
  if (std::cmp_not_equal(padded.size(), n)) {
    return failure(Code::kInvalid, "{} ports were given for {} workers", padded.size(), n);
  }
  for (const int port : padded) {
    // Port 0 asks the kernel, and two workers that ask it get two answers.
    if (port < 0 || port > kLargestPort) {
      return failure(Code::kInvalid, "port {} is not between 0 and {}", port, kLargestPort);
    }
    if (port != 0 && std::count(padded.begin(), padded.end(), port) > 1) {
      return failure(Code::kInvalid, "port {} was given to two workers", port);
    }
  }
  return padded;
}

Result<std::vector<int>> pad_node_ids(const std::vector<int>& node_ids, int n) {
  if (node_ids.size() == 1 && node_ids.front() > std::numeric_limits<int>::max() - n) {
    return failure(Code::kInvalid, "node_ids: the ids of {} workers from {} on are too large", n,
                   node_ids.front());
  }
  std::vector<int> padded = padding_param(node_ids, n, 0);
  if (std::cmp_not_equal(padded.size(), n)) {
    return failure(Code::kInvalid, "{} node ids were given for {} workers", padded.size(), n);
  }
  std::set<int> seen;
  for (const int id : padded) {
    if (id < 0) return failure(Code::kInvalid, "node id {} is negative", id);
    if (!seen.insert(id).second) {
      return failure(Code::kInvalid, "node id {} was given to two workers", id);
    }
  }
  return padded;
}

std::string detect_address() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return first_interface_address();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(1);
  ::inet_pton(AF_INET, "10.255.255.255", &address.sin_addr);
  socklen_t size = sizeof(address);
  char text[INET_ADDRSTRLEN] = "";
  const bool known =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
      ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text)) != nullptr;
  ::close(fd);
  return known ? std::string(text) : first_interface_address();
}

std::string temp_directory() {
  const char* const chosen = std::getenv("TMPDIR");
  std::string directory = chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  return directory;
}

Result<std::vector<std::string>> make_ipc_addresses(int n) {
  const std::string directory = temp_directory();
  remove_stale_sockets(directory);
  std::vector<std::string> addresses;
  while (addresses.empty()) {
    const std::string tag = random_tag();
    for (int i = 0; i < n; ++i) {
      const std::string path = fmt::format("{}/ditask_{}_{}.ipc", directory, tag, i);
      if (path.size() >= sizeof(sockaddr_un::sun_path)) {
        return failure(Code::kInvalid,
                       "the socket path {} is longer than the {} bytes the system allows; "
                       "set TMPDIR to a shorter directory",
                       path, sizeof(sockaddr_un::sun_path) - 1);
      }
      if (exists(path)) {  // another launcher drew the same tag: draw again
        addresses.clear();
        break;
      }
      addresses.push_back(std::string(kIpcScheme) + path);
    }
    if (n <= 0) break;
  }
  return addresses;
}

Result<std::vector<std::string>> node_addresses(int n, Protocol protocol,
                                                const std::string& address,
                                                const std::vector<int>& ports) {
  if (protocol == Protocol::kIpc) return make_ipc_addresses(n);
  DIVISI_TRY(const std::vector<int> padded, pad_ports(ports, n));
  const std::string host = address.empty() ? detect_address() : address;
  std::vector<std::string> addresses;
  for (const int port : padded) {
    // A bare IPv6 address needs its brackets before a port can follow.
    const bool bare_v6 = host.find(':') != std::string::npos && host.front() != '[';
    DIVISI_TRY(std::string one,
               normalise_address(bare_v6 ? fmt::format("tcp://[{}]:{}", host, port)
                                         : fmt::format("tcp://{}:{}", host, port)));
    addresses.push_back(std::move(one));
  }
  return addresses;
}

Result<std::string> peer_address(std::string_view text) {
  DIVISI_TRY(const io::Address address, io::Address::parse(text));
  if (address.scheme == io::Address::Scheme::kTcp && address.port == 0) {
    return failure(Code::kInvalid, "address '{}' has port 0, nobody can listen there", text);
  }
  return address.to_string();
}

Result<std::string> normalise_address(std::string_view text) {
  DIVISI_TRY(const io::Address address, io::Address::parse(text));
  return address.to_string();
}

std::string ipc_path(std::string_view address) {
  if (!address.starts_with(kIpcScheme)) return {};
  address.remove_prefix(kIpcScheme.size());
  if (address.starts_with('@')) return {};
  return std::string(address);
}

std::vector<int> dialled_workers(Topology topology, int i) {
  std::vector<int> dialled;
  if (topology == Topology::kMesh) {
    for (int k = 0; k < i; ++k) dialled.push_back(k);
  } else if (topology == Topology::kStar && i > 0) {
    dialled.push_back(0);
  }
  return dialled;
}

std::vector<int> linked_workers(Topology topology, int n, int i) {
  std::vector<int> linked = dialled_workers(topology, i);
  for (int k = i + 1; k < n; ++k) {
    const std::vector<int> theirs = dialled_workers(topology, k);
    if (std::ranges::find(theirs, i) != theirs.end()) linked.push_back(k);
  }
  return linked;
}

}  // namespace divisi::runtime
