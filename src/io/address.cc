#include "io/address.h"

#include <charconv>
#include <sys/un.h>

namespace divisi::io {

namespace {

constexpr std::size_t kMaxPath = sizeof(sockaddr_un{}.sun_path) - 1;

Result<std::uint16_t> parse_port(std::string_view text, std::string_view whole) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > 65535) {
    return failure(Code::kInvalid, "address '{}': '{}' is not a port (0 to 65535)", whole, text);
  }
  return static_cast<std::uint16_t>(value);
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  Address address;
  std::string_view rest = text;
  if (rest.starts_with("ipc://")) {
    address.scheme = Scheme::kIpc;
    address.path = rest.substr(6);
    if (address.path.empty() || address.path.size() > kMaxPath) {
      return failure(Code::kInvalid, "address '{}': an ipc path has 1 to {} characters", text,
                     kMaxPath);
    }
    return address;
  }
  if (rest.starts_with("tcp://")) {
    rest.remove_prefix(6);
  } else if (rest.find("://") != std::string_view::npos) {
    return failure(Code::kInvalid,
                   "address '{}': unknown scheme; use tcp://host:port or ipc://path", text);
  }
  const auto colon = rest.rfind(':');
  if (colon == 0) {
    return failure(Code::kInvalid, "address '{}' has no host; write host:port", text);
  }
  if (colon == std::string_view::npos) {
    return failure(Code::kInvalid, "address '{}' has no port; write host:port", text);
  }
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return failure(Code::kInvalid, "address '{}': write an IPv6 host in brackets, [::1]:50515",
                   text);
  }
  if (host.empty() || host.size() > 253 || host.find_first_of("[]") != std::string_view::npos) {
    return failure(Code::kInvalid, "address '{}' has no usable host name", text);
  }
  DIVISI_TRY(address.port, parse_port(rest.substr(colon + 1), text));
  address.host = host;
  return address;
}

std::string Address::to_string() const {
  if (scheme == Scheme::kIpc) return "ipc://" + path;
  const bool bracket = host.find(':') != std::string::npos;
  return fmt::format("tcp://{}{}{}:{}", bracket ? "[" : "", host, bracket ? "]" : "", port);
}

}  // namespace divisi::io
