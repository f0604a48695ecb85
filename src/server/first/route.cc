#include "server/first/route.h"

#include "http/message.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace divisi::server::first {
namespace {

constexpr std::size_t kMaxRouteParts = 3;

// Without empty ones: a server URL that ends with a slash gives "//v1alpha1/...".
std::vector<std::string_view> route_parts(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty() && parts.size() <= kMaxRouteParts) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

bool decode_query_text(std::string_view text, std::string& decoded) {
  std::string spaced(text);
  std::ranges::replace(spaced, '+', ' ');
  return http::decode_component(spaced, decoded);
}

std::string* find_field(Query& query, std::string_view key) {
  if (http::same_name(key, "namespace")) return &query.space;
  if (http::same_name(key, "coordinator")) return &query.coordinator;
  if (http::same_name(key, "aggregator")) return &query.aggregator;
  if (http::same_name(key, "name")) return &query.name;
  return nullptr;
}

Status read_pair(std::string_view pair, Query& query) {
  const std::size_t equals = pair.find('=');
  std::string key;
  std::string value;
  const bool decoded =
      decode_query_text(pair.substr(0, equals), key) &&
      (equals == std::string_view::npos || decode_query_text(pair.substr(equals + 1), value));
  if (!decoded) {
    return make_status(Code::kInvalid, "the query of the request has a broken percent-encoding");
  }
  std::string* field = find_field(query, key);
  if (field == nullptr) {
    constexpr std::size_t kShown = 100;
    return make_status(Code::kInvalid, "request param {} is not supported", key.substr(0, kShown));
  }
  if (field->empty()) *field = std::move(value);  // the first one counts
  return {};
}

}  // namespace

std::optional<Subject> find_route(std::string_view target) {
  const auto parts = route_parts(target.substr(0, target.find('?')));
  if (parts.size() < 2 || parts[0] != "v1alpha1" || parts[1] != "replicas") return std::nullopt;
  if (parts.size() == 2) return Subject::kReplicas;
  if (parts.size() == 3 && parts[2] == "failed") return Subject::kFailed;
  return std::nullopt;
}

std::string_view subject_name(Subject subject) {
  return subject == Subject::kReplicas ? "first-replicas" : "first-failed";
}

Result<Query> parse_query(std::string_view target) {
  const std::size_t mark = target.find('?');
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  Query query;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    if (pair.empty()) continue;
    if (Status bad = read_pair(pair, query); !bad.ok()) return failure(std::move(bad));
  }
  return query;
}

}  // namespace divisi::server::first
