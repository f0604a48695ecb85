#include "server/first/demand.h"

#include "dijob/amounts.h"
#include "json/value.h"
#include "server/body.h"
#include "server/envelope.h"

#include <algorithm>
#include <set>
#include <utility>

namespace divisi::server::first {
namespace {

// Null is absent, as Go's decoder has it.
const json::Value* find_given(const json::Value& object, std::string_view key) {
  const json::Value* found = object.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

tl::unexpected<Status> undecodable(std::string_view path, std::string_view wanted,
                                   const json::Value& found) {
  return failure(Code::kInvalid, "failed to decode request body: {} must be {}, not {}", path,
                 wanted, found.kind());
}

Result<std::string> read_text(const json::Value& object, std::string_view key) {
  const json::Value* found = find_given(object, key);
  if (found == nullptr) return std::string();
  if (found->as_string() == nullptr) return undecodable(key, "a string", *found);
  return *found->as_string();
}

std::string path_of(std::string_view role, std::string_view key) {
  return fmt::format("{}.{}", role, key);
}

Result<int> read_count(const json::Value& size, std::string_view role) {
  const json::Value* found = find_given(size, "replicas");
  if (found == nullptr) return 0;
  const std::string path = path_of(role, "replicas");
  if (found->as_int() == nullptr) return undecodable(path, "a whole number", *found);
  const std::int64_t count = *found->as_int();
  if (count < 0 || count > kMaxReplicas) {
    return failure(Code::kInvalid, "{} is {}: it must be between 0 and {}", path, count,
                   kMaxReplicas);
  }
  return static_cast<int>(count);
}

Result<json::Quantity> read_quantity(const json::Value& size, std::string_view role,
                                     std::string_view key) {
  const json::Value* found = find_given(size, key);
  if (found == nullptr) return json::Quantity();
  const auto amount = dijob::read_amount(*found);
  if (!amount) {
    return failure(Code::kInvalid,
                   "failed to decode request body: {}: quantities must match the regular "
                   "expression {}",
                   path_of(role, key), kQuantitySyntax);
  }
  if (amount->sign() < 0) {
    return failure(Code::kInvalid, "{} is {}: it must not be negative", path_of(role, key),
                   amount->to_string());
  }
  return *amount;
}

Result<int> read_gpus(const json::Value& size, std::string_view role) {
  DIVISI_TRY(const json::Quantity amount, read_quantity(size, role, "gpus"));
  if (json::Quantity(amount.value()) != amount) {
    return failure(Code::kInvalid, "{} is {}: GPUs are whole", path_of(role, "gpus"),
                   amount.to_string());
  }
  if (amount.value() > kMaxGpus) {
    return failure(Code::kInvalid, "{} is {}: one replica has at most {}", path_of(role, "gpus"),
                   amount.to_string(), kMaxGpus);
  }
  return static_cast<int>(amount.value());
}

Status read_pods(const json::Value& body, std::string_view role, std::set<std::string>& seen,
                 Report& report) {
  const json::Value* found = find_given(body, role);
  if (found == nullptr) return {};
  if (found->as_array() == nullptr) return undecodable(role, "a list of names", *found).value();
  for (const json::Value& each : *found->as_array()) {
    if (each.as_string() == nullptr) {
      return undecodable(fmt::format("each of {}", role), "a string", each).value();
    }
    std::string pod(pod_of_url(*each.as_string(), report.space));
    if (seen.insert(pod).second) report.pods.push_back(std::move(pod));
  }
  return {};
}

}  // namespace

Result<std::optional<Size>> read_size(const json::Value& body, std::string_view role) {
  const json::Value* found = find_given(body, role);
  if (found == nullptr) return std::optional<Size>();
  if (found->as_object() == nullptr) return undecodable(role, "an object", *found);
  Size size;
  DIVISI_TRY(size.replicas, read_count(*found, role));
  DIVISI_TRY(size.cpus, read_quantity(*found, role, "cpus"));
  DIVISI_TRY(size.memory, read_quantity(*found, role, "memory"));
  DIVISI_TRY(size.gpus, read_gpus(*found, role));
  return std::optional(size);
}

Result<Demand> read_demand(std::string_view body) {
  DIVISI_TRY(const json::Value object, read_object(body));
  Demand demand;
  DIVISI_TRY(demand.space, read_text(object, "namespace"));
  DIVISI_TRY(demand.coordinator, read_text(object, "coordinator"));
  DIVISI_TRY(demand.collectors, read_size(object, "collectors"));
  DIVISI_TRY(demand.learners, read_size(object, "learners"));
  return demand;
}

Result<Report> read_report(std::string_view body) {
  DIVISI_TRY(const json::Value object, read_object(body));
  Report report;
  DIVISI_TRY(report.space, read_text(object, "namespace"));
  DIVISI_TRY(report.coordinator, read_text(object, "coordinator"));
  std::set<std::string> seen;
  for (const std::string_view role : {"collectors", "learners"}) {
    if (Status bad = read_pods(object, role, seen, report); !bad.ok()) {
      return failure(std::move(bad));
    }
  }
  return report;
}

std::string_view pod_of_url(std::string_view url, std::string_view space) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with(kScheme)) url.remove_prefix(kScheme.size());
  url = url.substr(0, url.find(':'));
  if (!space.empty() && url.size() > space.size() + 1 && url.ends_with(space) &&
      url[url.size() - space.size() - 1] == '.') {
    url.remove_suffix(space.size() + 1);
  }
  return url;
}

}  // namespace divisi::server::first
