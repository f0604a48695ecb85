#include "dijob/job_status.h"

#include "kube/time.h"

#include <algorithm>
#include <utility>

namespace divisi::dijob {
namespace {

// The one list of names. `f` gets each with the member that holds it.
template <class F>
void for_each_field(F&& f) {
  f("phase", &JobStatus::phase);
  f("form", &JobStatus::form);
  f("conditions", &JobStatus::conditions);
  f("observedGeneration", &JobStatus::observed_generation);
  f("startTime", &JobStatus::start_time);
  f("completionTimestamp", &JobStatus::completion_time);
  f("replicas", &JobStatus::replicas);
  f("readyReplicas", &JobStatus::ready_replicas);
  f("scaledReplicas", &JobStatus::scaled_replicas);
  f("selector", &JobStatus::selector);
  f("secretName", &JobStatus::secret_name);
  f("secretHash", &JobStatus::secret_hash);
  f("restarts", &JobStatus::restarts);
  f("reschedules", &JobStatus::reschedules);
  f("spentRestarts", &JobStatus::spent_restarts);
  f("taskRestarts", &JobStatus::task_restarts);
  f("waveTime", &JobStatus::wave_time);
  f("generation", &JobStatus::generation);
  f("taskStatus", &JobStatus::task_status);
  f("succeeded", &JobStatus::succeeded);
  f("failures", &JobStatus::failures);
  f("ranks", &JobStatus::ranks);
  f("sizes", &JobStatus::sizes);
  f("restartedAt", &JobStatus::restarted_at);
  f("rolling", &JobStatus::rolling);
  f("allocation", &JobStatus::allocation);
  f("replicaStatus", &JobStatus::replica_status);
  f("coordinatorUid", &JobStatus::coordinator_uid);
}

// --- reading: what is of another kind is absent ---

void read_status_field(const json::Value& from, std::string& to) {
  if (from.as_string() != nullptr) to = *from.as_string();
}

void read_status_field(const json::Value& from, std::int64_t& to) {
  if (from.as_int() != nullptr) to = *from.as_int();
}

// Counts: never negative.
void read_status_field(const json::Value& from, int& to) {
  constexpr std::int64_t kMost = 1'000'000'000;
  if (from.as_int() != nullptr)
    to = static_cast<int>(std::clamp<std::int64_t>(*from.as_int(), 0, kMost));
}

void read_status_field(const json::Value& from, std::optional<int>& to) {
  if (from.as_int() != nullptr) read_status_field(from, to.emplace());
}

void read_status_field(const json::Value& from, std::optional<std::int64_t>& to) {
  if (from.as_int() != nullptr) to = *from.as_int();
}

void read_status_field(const json::Value& from, std::optional<WallTime>& to) {
  if (from.as_string() != nullptr) to = kube::parse_time(*from.as_string());
}

void read_status_field(const json::Value& from, json::Value& to) {
  to = from;
}

void read_status_field(const json::Value& from, json::Array& to) {
  if (from.as_array() != nullptr) to = *from.as_array();
}

// A list keeps its places: what is no text is an empty one.
void read_status_field(const json::Value& from, std::vector<std::string>& to) {
  if (from.as_array() == nullptr) return;
  for (const json::Value& each : *from.as_array()) read_status_field(each, to.emplace_back());
}

void read_status_field(const json::Value& from, std::optional<std::vector<std::string>>& to) {
  if (from.as_array() != nullptr) read_status_field(from, to.emplace());
}

void read_status_field(const json::Value& from, std::optional<Sizes>& to) {
  to = read_sizes(from);
}

void read_status_field(const json::Value& from, SeatFailures& to);
void read_status_field(const json::Value& from, RoleCounts& to);
template <class T, class Less>
void read_status_field(const json::Value& from, std::map<std::string, T, Less>& to);

void read_status_member(const json::Value& from, std::string_view key, auto& to) {
  if (const json::Value* const member = from.find(key)) read_status_field(*member, to);
}

void read_status_field(const json::Value& from, SeatFailures& to) {
  read_status_member(from, "uid", to.uid);
  read_status_member(from, "older", to.older);
  read_status_member(from, "count", to.count);
  read_status_member(from, "time", to.time);
  read_status_member(from, "restart", to.restart);
}

void read_status_field(const json::Value& from, RoleCounts& to) {
  read_status_member(from, "active", to.active);
  read_status_member(from, "succeeded", to.succeeded);
  read_status_member(from, "failed", to.failed);
}

template <class T, class Less>
void read_status_field(const json::Value& from, std::map<std::string, T, Less>& to) {
  if (from.as_object() == nullptr) return;
  for (const auto& [key, value] : *from.as_object()) read_status_field(value, to[key]);
}

// --- writing ---

json::Value status_json(const std::string& from) {
  return from.empty() ? json::Value() : json::Value(from);
}
json::Value status_json(int from) {
  return from;
}
json::Value status_json(std::int64_t from) {
  return from;
}
json::Value status_json(WallTime from) {
  return kube::rfc3339(from);
}
json::Value status_json(const json::Value& from) {
  return from;
}
json::Value status_json(const json::Array& from) {
  return from;
}

json::Value status_json(const std::vector<std::string>& from) {
  json::Array list;
  for (const std::string& each : from) list.emplace_back(each);
  return list;
}

json::Value status_json(const Sizes& from) {
  return to_json(from);
}

// Zeros are left out: a role that nobody has prints as an empty object.
json::Value status_json(const RoleCounts& from) {
  json::Value counts(json::Object{});
  if (from.active > 0) counts["active"] = from.active;
  if (from.succeeded > 0) counts["succeeded"] = from.succeeded;
  if (from.failed > 0) counts["failed"] = from.failed;
  return counts;
}

json::Value status_json(const SeatFailures& from) {
  json::Value entry;
  entry["uid"] = from.uid;
  if (!from.older.empty()) entry["older"] = status_json(from.older);
  entry["count"] = from.count;
  if (from.time) entry["time"] = kube::rfc3339(*from.time);
  if (from.restart) entry["restart"] = *from.restart;
  return entry;
}

template <class T, class Less>
json::Value status_json(const std::map<std::string, T, Less>& from) {
  json::Value object(json::Object{});
  for (const auto& [key, value] : from) object[key] = status_json(value);
  return object;
}

template <class T>
json::Value status_json(const std::optional<T>& from) {
  return from ? status_json(*from) : json::Value();
}

template <class T>
bool is_absent(const T& field) {
  if constexpr (requires { field.has_value(); }) {
    return !field.has_value();
  } else if constexpr (requires { field.is_null(); }) {
    return field.is_null();
  } else {
    return field.empty();
  }
}

}  // namespace

JobStatus read_job_status(const json::Value& object) {
  JobStatus status;
  const json::Value* const from = object.find("status");
  if (from == nullptr) return status;
  for_each_field(
      [&](std::string_view name, auto member) { read_status_member(*from, name, status.*member); });
  return status;
}

json::Value write_job_status(const JobStatus& status, const JobStatus& read,
                             const json::Value& before) {
  json::Value written = before.as_object() == nullptr ? json::Value(json::Object{}) : before;
  for_each_field([&](std::string_view name, auto member) {
    if (status.*member == read.*member) return;
    if (is_absent(status.*member)) {
      written.erase(name);
    } else {
      written[name] = status_json(status.*member);
    }
  });
  return written;
}

void erase_counts(json::Value& status) {
  for (const std::string_view count : {"readyReplicas", "scaledReplicas", "taskStatus", "succeeded",
                                       "observedGeneration", "replicaStatus"}) {
    status.erase(count);
  }
  // Of the other forms it is a size.
  if (status.string_at({"form"}) == forms::kCoordinator) status.erase("replicas");
}

std::string_view form_of(const json::Value& object) {
  return object.string_at({"status", "form"});
}

std::string_view phase_of(const json::Value& object) {
  return object.string_at({"status", "phase"});
}

bool has_seen_spec(const json::Value& object) {
  return object.int_at({"status", "observedGeneration"}) ==
         object.int_at({"metadata", "generation"});
}

}  // namespace divisi::dijob
