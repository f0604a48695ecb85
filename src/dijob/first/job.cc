#include "dijob/first/job.h"

#include "dijob/fields.h"
#include "dijob/pod_template.h"

#include <algorithm>
#include <utility>

namespace divisi::dijob::first {
namespace {

constexpr std::size_t kMaxName = 63;    // of a service, which is named like its pod
constexpr std::size_t kSuffixSize = 6;  // "-" and five random characters

tl::unexpected<Status> undecodable(std::string_view why) {
  return failure(Code::kInvalid, "failed to convert type: {}", why);
}

bool is_present(const json::Value& spec, std::string_view key) {
  const json::Value* const value = spec.find(key);
  return value != nullptr && !value->is_null();
}

std::optional<json::Value> read_role(Fields& spec, Role role, std::vector<std::string>& warnings) {
  if (spec.find(role_name(role)) == nullptr) return std::nullopt;
  Fields owner = spec.object(role_name(role));
  return read_pod_template(owner, warnings);
}

void read_clean_pods(Fields& spec, Job& job) {
  const std::string policy = spec.text("cleanPodPolicy");
  job.has_clean_pods = !policy.empty();
  if (policy.empty() || policy == "Running") {
    job.clean_pods = CleanPods::kRunning;
  } else if (policy == "All" || policy == "ALL") {  // v0.1.0 wrote it in capitals
    job.clean_pods = CleanPods::kAll;
  } else if (policy == "None") {
    job.clean_pods = CleanPods::kNone;
  } else {
    job.faults.push_back(
        fmt::format("Invalid CleanPodPolicy {}, expected in [None, Running, All]", policy));
  }
}

bool is_service_name(std::string_view name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && is_letter(name.front()) && name.back() != '-' &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || is_digit(c) || c == '-'; });
}

// The longest pod name that the templates of the job can lead to without an aggregator.
std::size_t longest_pod_name(const Job& job) {
  std::size_t longest = fixed_pod_name(job.name, Role::kCoordinator).size();
  for (const Role role : {Role::kCollector, Role::kLearner}) {
    if (job.find_template(role) == nullptr) continue;
    longest = std::max(longest, fixed_pod_name(job.name, role).size() + kSuffixSize);
  }
  return longest;
}

}  // namespace

const json::Value* Job::find_template(Role role) const noexcept {
  switch (role) {
    case Role::kCoordinator: return &coordinator;
    case Role::kCollector: return collector ? &*collector : nullptr;
    case Role::kLearner:
    case Role::kDdpLearner: return learner ? &*learner : nullptr;
    case Role::kAggregator: return nullptr;
  }
  return nullptr;
}

bool is_first_generation(const json::Value& object) {
  const json::Value* const spec = object.find("spec");
  return spec != nullptr && is_present(*spec, "coordinator") && !is_present(*spec, "tasks") &&
         !is_present(*spec, "template");
}

Result<Job> read_job(const json::Value& object) {
  if (!is_first_generation(object)) {
    return undecodable("spec has no coordinator, or fields of the second generation beside it");
  }
  Job job;
  job.space = object.string_at({"metadata", "namespace"});
  job.name = object.string_at({"metadata", "name"});
  job.uid = object.string_at({"metadata", "uid"});
  job.generation = object.int_at({"metadata", "generation"}).value_or(0);
  job.deleting = !object.string_at({"metadata", "deletionTimestamp"}).empty();
  job.created = object.string_at({"metadata", "creationTimestamp"});
  job.aggregator_at_start =
      object.string_at({"metadata", "annotations", annotations::kAggregatorAtStart}) == "true";

  Status bad;
  Fields spec(*object.find("spec"), "spec", bad);
  job.priority_class = spec.text("priorityClassName");
  read_clean_pods(spec, job);
  job.volumes = spec.values("volumes");
  for (Fields& volume : spec.objects("volumes")) (void)volume.text("name");
  job.coordinator =
      read_role(spec, Role::kCoordinator, job.warnings).value_or(json::Value(json::Object{}));
  job.collector = read_role(spec, Role::kCollector, job.warnings);
  job.learner = read_role(spec, Role::kLearner, job.warnings);
  if (!bad.ok()) return undecodable(bad.message());
  return job;
}

Status check(const Job& job) {
  if (!job.faults.empty()) return make_status(Code::kInvalid, "{}", job.faults.front());
  if (job.name.find('.') != std::string::npos) {
    return make_status(Code::kInvalid,
                       "the job name {} contains a dot, which the names of its services cannot "
                       "have",
                       quoted(job.name));
  }
  if (!is_service_name(job.name)) {
    return make_status(Code::kInvalid,
                       "the job name {} must begin with a letter and consist of lower-case "
                       "letters, digits and -, as the names of its services do",
                       quoted(job.name));
  }
  if (const std::size_t size = longest_pod_name(job); size > kMaxName) {
    return make_status(Code::kInvalid,
                       "pods of the job {} would have names of {} characters; at most {} are "
                       "allowed",
                       quoted(job.name), size, kMaxName);
  }
  return {};
}

Result<json::Value> read_aggregator_template(const json::Value& config) {
  Status bad;
  std::vector<std::string> warnings;
  const json::Value* const given = config.find("spec");
  if (given == nullptr || given->find_path({"aggregator", "template"}) == nullptr) {
    return failure(Code::kInvalid, "the AggregatorConfig has no spec.aggregator.template");
  }
  Fields spec(*given, "spec", bad);
  Fields owner = spec.object(role_name(Role::kAggregator));
  json::Value pod_template = read_pod_template(owner, warnings);
  if (!bad.ok()) return failure(Code::kInvalid, "AggregatorConfig: {}", bad.message());
  return pod_template;
}

}  // namespace divisi::dijob::first
