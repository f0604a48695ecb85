#include "server/job_id.h"

#include "kube/resource.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace divisi::server {
namespace {

// As long as the longest id that can be right: "space.name.generation".
constexpr std::size_t kMaxShown = 340;

bool is_label(std::string_view text) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= 63 && plain(text.front()) && plain(text.back()) &&
         std::ranges::all_of(text, [&](char c) { return plain(c) || c == '-'; });
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_object_name(std::string_view text) {
  const auto labels = split(text, '.');
  return text.size() <= 253 && std::ranges::all_of(labels, is_label);
}

tl::unexpected<Status> malformed(std::string_view id, std::string_view format) {
  return failure(Code::kInvalid, "job id {} must be in {} format", id.substr(0, kMaxShown), format);
}

}  // namespace

std::string JobId::key() const {
  return kube::object_key(space, name);
}

Result<JobId> parse_job_id(std::string_view text) {
  constexpr std::string_view kTwo = "namespace.name";
  if (const std::size_t slash = text.find('/'); slash != std::string_view::npos) {
    const std::string_view space = text.substr(0, slash);
    const std::string_view name = text.substr(slash + 1);
    if (!is_label(space) || !is_object_name(name)) return malformed(text, kTwo);
    return JobId{std::string(space), std::string(name), std::nullopt};
  }
  const auto parts = split(text, '.');
  if (parts.size() < 2 || !is_label(parts[0]) || !is_label(parts[1])) return malformed(text, kTwo);
  if (parts.size() > 3) return malformed(text, "namespace.name.generation");
  JobId id{std::string(parts[0]), std::string(parts[1]), std::nullopt};
  if (parts.size() == 3) id.generation = std::string(parts[2].substr(0, kMaxShown));
  return id;
}

std::int64_t current_generation(const json::Value& object) {
  return object.int_at({"status", "generation"}).value_or(0);
}

Status check_generation(const JobId& id, const dijob::Job& job, const json::Value& object) {
  if (!id.generation || job.form != dijob::Form::kTemplate) return {};
  const std::string& text = *id.generation;
  std::int64_t asked = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), asked);
  if (error != std::errc() || end != text.data() + text.size()) {
    return make_status(Code::kInvalid, "request generation {} is not a valid number", text);
  }
  if (const std::int64_t now = current_generation(object); asked != now) {
    return make_status(Code::kInvalid,
                       "request generation {} is not matched with job generation {}", asked, now);
  }
  return {};
}

}  // namespace divisi::server
