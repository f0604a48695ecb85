#include "kube/proxy.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <optional>

namespace divisi::kube {
namespace {

struct Ip {
  std::array<unsigned char, 16> bytes{};  // of IPv4 the first four
  unsigned bits = 0;                      // 32 or 128

  friend bool operator==(const Ip&, const Ip&) = default;
};

std::optional<Ip> ip_of(const std::string& text) {
  Ip ip;
  if (::inet_pton(AF_INET, text.c_str(), ip.bytes.data()) == 1) {
    ip.bits = 32;
    return ip;
  }
  if (::inet_pton(AF_INET6, text.c_str(), ip.bytes.data()) != 1) return std::nullopt;
  constexpr std::array<unsigned char, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  ip.bits = 128;
  if (!std::equal(kMapped.begin(), kMapped.end(), ip.bytes.begin())) return ip;
  Ip inner{.bits = 32};  // ::ffff:10.0.0.1 is 10.0.0.1
  std::copy(ip.bytes.begin() + kMapped.size(), ip.bytes.end(), inner.bytes.begin());
  return inner;
}

bool same_network(const Ip& a, const Ip& b, unsigned prefix) {
  if (a.bits != b.bits) return false;
  for (unsigned bit = 0; bit < prefix; ++bit) {
    if (((a.bytes[bit / 8] ^ b.bytes[bit / 8]) & (0x80U >> (bit % 8))) != 0) return false;
  }
  return true;
}

std::optional<unsigned> number(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_this_machine(const std::string& host, const std::optional<Ip>& ip) {
  if (!ip) return host == "localhost";
  if (ip->bits == 32) return ip->bytes[0] == 127;
  Ip loopback{.bits = 128};
  loopback.bytes.back() = 1;
  return *ip == loopback;
}

std::string lower(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return made;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// "host:port", "[::1]:port", or a host alone: takes the port off.
std::optional<unsigned> take_port(std::string& entry) {
  const bool bracketed = entry.starts_with('[');
  const auto colon = bracketed ? entry.find("]:") : entry.find(':');
  if (colon == std::string::npos || (!bracketed && entry.find(':', colon + 1) != std::string::npos))
    return std::nullopt;  // no port; an address of IPv6 without brackets
  const auto port = number(std::string_view(entry).substr(colon + (bracketed ? 2 : 1)));
  entry = bracketed ? entry.substr(1, colon - 1) : entry.substr(0, colon);
  // A port that is none is one that nobody has.
  return port.value_or(0);
}

bool matches_network(std::string_view entry, const std::optional<Ip>& ip) {
  const auto slash = entry.find('/');
  const auto network = ip_of(std::string(entry.substr(0, slash)));
  const auto prefix = number(entry.substr(slash + 1));
  return ip && network && prefix && *prefix <= network->bits &&
         same_network(*ip, *network, *prefix);
}

bool matches(std::string entry, const http::Url& server, const std::string& host,
             const std::optional<Ip>& ip) {
  if (entry.find('/') != std::string::npos) return matches_network(entry, ip);
  if (const auto port = take_port(entry); port && *port != server.port) return false;
  if (const auto other = ip_of(entry)) return ip == other;
  if (entry.starts_with("*.")) entry.erase(0, 1);
  if (entry.empty() || entry == ".") return false;
  if (entry.front() == '.') return host.ends_with(entry);
  return host == entry || host.ends_with("." + entry);
}

// The upper-case form counts where both are set.
std::string value_of(const EnvironmentLookup& environment, const std::string& name) {
  if (!environment) return {};
  const std::string value = environment(name).value_or("");
  return value.empty() ? environment(lower(name)).value_or("") : value;
}

}  // namespace

bool is_excepted(const http::Url& server, std::string_view no_proxy) {
  const std::string host = lower(server.host);
  const auto ip = ip_of(host);
  if (is_this_machine(host, ip)) return true;
  while (!no_proxy.empty()) {
    const auto end = std::min(no_proxy.find(','), no_proxy.size());
    const std::string entry = lower(trimmed(no_proxy.substr(0, end)));
    no_proxy.remove_prefix(std::min(end + 1, no_proxy.size()));
    if (entry == "*" || matches(entry, server, host, ip)) return true;
  }
  return false;
}

Result<std::string> proxy_from_environment(const EnvironmentLookup& environment,
                                           const http::Url& server) {
  const std::string name = server.tls ? "HTTPS_PROXY" : "HTTP_PROXY";
  std::string proxy = value_of(environment, name);
  if (proxy.empty() || is_excepted(server, value_of(environment, "NO_PROXY"))) return std::string();
  if (proxy.find("://") == std::string::npos) proxy.insert(0, "http://");
  const auto url = http::Url::parse(proxy);
  if (url && !url->tls) return proxy;
  return failure(Code::kInvalid,
                 "the proxy that {} names must be http://host:port; NO_PROXY={} goes without it",
                 name, server.host);
}

}  // namespace divisi::kube
