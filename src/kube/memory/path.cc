#include "kube/memory/path.h"

#include "http/message.h"
#include "kube/resource.h"

#include <charconv>
#include <string_view>
#include <vector>

namespace divisi::kube {
namespace {

bool read_query(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    std::string value;
    if (!http::decode_component(pair.substr(equals + 1), value)) return false;
    query[std::string(pair.substr(0, equals))] = value;
  }
  return true;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('/'));
    parts.emplace_back(part);
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  return parts;
}

}  // namespace

std::optional<ApiPath> ApiPath::parse(const std::string& target) {
  ApiPath path;
  const std::size_t mark = target.find('?');
  if (mark != std::string::npos &&
      !read_query(std::string_view(target).substr(mark + 1), path.query)) {
    return std::nullopt;
  }
  const std::vector<std::string> parts =
      split(std::string_view(target).substr(1, mark == std::string::npos ? mark : mark - 1));
  const std::size_t group = parts.empty() || parts[0] == "api" ? 2 : 3;
  if (parts.size() <= group) return std::nullopt;
  std::size_t next = group;
  if (parts[next] == "namespaces" && parts.size() > next + 2) {
    path.space = parts[next + 1];
    next += 2;
  }
  for (std::size_t i = 0; i < group; ++i) path.collection += "/" + parts[i];
  path.collection += "/" + parts[next++];
  if (next < parts.size()) path.name = parts[next++];
  if (next < parts.size()) path.subresource = parts[next];
  return path;
}

std::string ApiPath::key() const {
  return object_key(space, name);
}

std::string ApiPath::get(const std::string& parameter) const {
  const auto found = query.find(parameter);
  return found == query.end() ? std::string() : found->second;
}

std::uint64_t ApiPath::number(const std::string& parameter) const {
  const std::string text = get(parameter);
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace divisi::kube
