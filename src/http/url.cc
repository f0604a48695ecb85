#include "http/client.h"

#include <algorithm>
#include <charconv>

namespace divisi::http {

namespace {

constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

// The URL as an error may show it: a password is nobody's business.
std::string shown(std::string_view text) {
  const auto scheme = text.find("://");
  const auto at = text.find('@');
  if (scheme == std::string_view::npos || at == std::string_view::npos || at < scheme) {
    return std::string(text);
  }
  return fmt::format("{}***{}", text.substr(0, scheme + 3), text.substr(at));
}

bool good_host(std::string_view host) {
  return !host.empty() && std::ranges::all_of(host, [](char c) {
    return c > ' ' && c < 127 &&
           std::string_view("/?#@[]\\\"<>{}|^`").find(c) == std::string_view::npos;
  });
}

}  // namespace

Result<Url> Url::parse(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return failure(Code::kInvalid, "URL '{}': {}; use http://host:port or https://host:port",
                   shown(text), why);
  };
  Url url;
  std::string_view rest = text;
  const auto scheme_end = rest.find("://");
  if (scheme_end == std::string_view::npos) return wrong("no scheme");
  const auto scheme = rest.substr(0, scheme_end);
  if (same_name(scheme, "https")) {
    url.tls = true;
  } else if (!same_name(scheme, "http")) {
    return wrong("unknown scheme");
  }
  rest.remove_prefix(scheme_end + 3);

  const auto path_start = std::min(rest.find_first_of("/?#"), rest.size());
  const auto path = rest.substr(path_start);
  rest = rest.substr(0, path_start);
  if (path.find_first_of("?#") != std::string_view::npos)
    return wrong("a query does not belong here");
  if (std::ranges::any_of(path, [](char c) { return c <= ' ' || c >= 127; })) {
    return wrong("the path is not percent-encoded");
  }
  url.path = path.substr(0, path.find_last_not_of('/') + 1);

  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    if (!decode_component(rest.substr(0, at), url.user)) return wrong("bad percent-encoding");
    rest.remove_prefix(at + 1);
  }
  std::string_view port;
  if (rest.starts_with('[')) {
    const auto close = rest.find(']');
    if (close == std::string_view::npos) return wrong("no ']' behind the address");
    url.host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (!rest.empty() && !rest.starts_with(':')) return wrong("no port behind the address");
    port = rest.empty() ? rest : rest.substr(1);
  } else {
    const auto colon = rest.find(':');
    url.host = rest.substr(0, colon);
    if (url.host.find(':') != std::string::npos) return wrong("an IPv6 address needs brackets");
    if (colon != std::string_view::npos) port = rest.substr(colon + 1);
  }
  if (!good_host(url.host)) return wrong("no host");
  url.port = url.tls ? kHttpsPort : kHttpPort;
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size() || url.port == 0) {
      return wrong("the port is not one of 1 to 65535");
    }
  }
  return url;
}

std::string Url::host_header() const {
  const bool bracketed = host.find(':') != std::string::npos;
  std::string text = bracketed ? fmt::format("[{}]", host) : host;
  if (port != (tls ? kHttpsPort : kHttpPort)) text += fmt::format(":{}", port);
  return text;
}

std::string Url::authority() const {
  const bool bracketed = host.find(':') != std::string::npos;
  return bracketed ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string Url::origin() const {
  return fmt::format("{}://{}", tls ? "https" : "http", host_header());
}

}  // namespace divisi::http
