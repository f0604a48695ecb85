#include "server/route.h"

#include "http/message.h"

#include <array>
#include <optional>
#include <vector>

namespace divisi::server {
namespace {

struct Named {
  std::string_view name;
  Subject subject;
};
constexpr std::array kSubjects{
    Named{"replicas", Subject::kReplicas}, Named{"profilings", Subject::kProfilings},
    Named{"members", Subject::kMembers}, Named{"trial", Subject::kTrial}};

std::optional<Subject> find_subject(std::string_view name) {
  for (const Named& known : kSubjects) {
    if (known.name == name) return known.subject;
  }
  return std::nullopt;
}

// The longest route has five parts: what has more is none, however long.
constexpr std::size_t kMaxParts = 6;

// Empty parts are left out: a server URL that ends with a slash gives "//v2alpha1/...".
std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty() && parts.size() < kMaxParts) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

bool asks_to_watch(std::string_view query) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair == "watch=true" || pair == "watch=1") return true;
  }
  return false;
}

}  // namespace

std::string_view subject_name(Subject subject) {
  for (const Named& known : kSubjects) {
    if (known.subject == subject) return known.name;
  }
  return {};
}

Result<Route> parse_route(std::string_view target) {
  const std::size_t mark = target.find('?');
  const auto parts = parts_of(target.substr(0, mark));
  const auto no_route = [] { return failure(Code::kNotFound, "there is no such route"); };
  if (parts.size() < 3 || parts.front() != "v2alpha1") return no_route();
  const auto subject = find_subject(parts.back());
  if (!subject) return no_route();

  // "job" in front of the id is optional; alone it is an id, and a wrong one.
  const std::size_t first = parts[1] == "job" && parts.size() > 3 ? 2 : 1;
  const std::size_t count = parts.size() - 1 - first;
  if (count > 2) return no_route();
  std::string id;
  for (std::size_t i = first; i < first + count; ++i) {
    std::string part;
    if (!http::decode_component(parts[i], part)) {
      return failure(Code::kInvalid, "the path of the request is no valid encoding");
    }
    if (i > first) id += '/';
    id += part;
  }
  DIVISI_TRY(JobId parsed, parse_job_id(id));
  return Route{*subject, std::move(parsed),
               mark != std::string_view::npos && asks_to_watch(target.substr(mark + 1))};
}

}  // namespace divisi::server
