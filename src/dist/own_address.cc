#include "dist/master.h"

#include <arpa/inet.h>
#include <array>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>

namespace divisi::dist {
namespace {

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* const written = inet_ntop(family, address, text.data(), text.size());
  return written != nullptr ? std::string(written) : std::string();
}

// Empty for what others cannot reach.
std::string usable(const ifaddrs& each) {
  if (each.ifa_addr == nullptr) return {};
  if ((each.ifa_flags & IFF_UP) == 0 || (each.ifa_flags & IFF_LOOPBACK) != 0) return {};
  if (each.ifa_addr->sa_family == AF_INET) {
    return text_of(AF_INET, &reinterpret_cast<const sockaddr_in*>(each.ifa_addr)->sin_addr);
  }
  if (each.ifa_addr->sa_family != AF_INET6) return {};
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(each.ifa_addr)->sin6_addr;
  return IN6_IS_ADDR_LINKLOCAL(&address) ? std::string() : text_of(AF_INET6, &address);
}

}  // namespace

std::string own_address() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, &freeifaddrs);
  std::string second_choice;  // IPv6
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    std::string text = usable(*each);
    if (text.empty()) continue;
    if (each->ifa_addr->sa_family == AF_INET) return text;
    if (second_choice.empty()) second_choice = std::move(text);
  }
  return second_choice.empty() ? "127.0.0.1" : second_choice;
}

}  // namespace divisi::dist
