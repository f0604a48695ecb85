#include "run/cluster_start.h"

#include "http/base64.h"
#include "io/crypto.h"
#include "run/cluster_objects.h"
#include "run/job_watch.h"
#include "run/package_zip.h"
#include "run/rendering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>
#include <utility>

namespace divisi::run {
namespace {

constexpr const char* kSecretFolder = "/var/run/divisi/job";

std::string random_text() {
  std::array<std::byte, 32> bytes{};
  io::fill_random(bytes);
  return io::hexadecimal(bytes);
}

std::string secret_name(const std::string& job) {
  return job + "-secret";
}

json::Value secret_of(const RunJob& job) {
  json::Value secret;
  secret["apiVersion"] = "v1";
  secret["kind"] = "Secret";
  secret["metadata"]["name"] = secret_name(job.name);
  secret["metadata"]["namespace"] = job.options.name_space;
  secret["metadata"]["labels"][kJobLabel] = job.name;
  secret["data"]["secret"] = http::encode_base64(random_text());
  return secret;
}

void append(json::Value& object, std::string_view key, json::Value item) {
  json::Value& list = object[key];
  if (list.as_array() == nullptr) list = json::Array();
  list.as_array()->push_back(std::move(item));
}

// The operator gives the pods of a DIJob a secret; those of a Job get this one.
void mount_secret(json::Value& job_object, const std::string& job) {
  json::Value& pod = job_object["spec"]["template"]["spec"];
  json::Value volume;
  volume["name"] = "job-secret";
  volume["secret"]["secretName"] = secret_name(job);
  append(pod, "volumes", std::move(volume));
  json::Value& container = pod["containers"].as_array()->front();
  json::Value mount;
  mount["name"] = "job-secret";
  mount["mountPath"] = kSecretFolder;
  mount["readOnly"] = true;
  append(container, "volumeMounts", std::move(mount));
  json::Value variable;
  variable["name"] = "DIVISI_SECRET_FILE";
  variable["value"] = fmt::format("{}/secret", kSecretFolder);
  append(container, "env", std::move(variable));
}

const kube::Resource& resource_of(std::string_view kind) {
  if (kind == "DIJob") return dijobs();
  if (kind == "Job") return batch_jobs();
  if (kind == "Service") return kube::resources::services();
  if (kind == "Secret") return kube::resources::secrets();
  return kube::resources::config_maps();
}

bool is_owner_kind(std::string_view kind) {
  return kind == "DIJob" || kind == "Job";
}

// The order in which they are made: see the header.
int turn_of(const json::Value& object) {
  const std::string_view kind = object.string_at({"kind"});
  if (is_owner_kind(kind)) return 0;
  if (kind == "Service") return 1;
  return kind == "ConfigMap" ? 2 : 3;
}

// Those of one turn stay in their order.
std::vector<json::Value> in_turn(std::vector<json::Value> objects) {
  std::multimap<int, json::Value> turns;
  for (json::Value& object : objects) {
    const int turn = turn_of(object);
    turns.emplace(turn, std::move(object));
  }
  std::vector<json::Value> ordered;
  for (auto& [turn, object] : turns) ordered.push_back(std::move(object));
  return ordered;
}

std::vector<json::Value> objects_of(const RunJob& job, const std::string& zip) {
  if (!job.objects.empty()) {
    std::vector<json::Value> objects = job.objects;
    for (json::Value& object : objects) {
      object["metadata"]["namespace"] = job.options.name_space;
      object["metadata"]["labels"][kJobLabel] = job.name;
    }
    return in_turn(std::move(objects));
  }
  if (job.backend == BackendKind::kDijob) return in_turn(dijob_documents(job, zip));
  std::vector<json::Value> objects = job_documents(job, zip);
  for (json::Value& object : objects) {
    if (object.string_at({"kind"}) == "Job") mount_secret(object, job.name);
  }
  objects.push_back(secret_of(job));
  return in_turn(std::move(objects));
}

json::Value reference_to(const json::Value& owner) {
  json::Value reference;
  reference["apiVersion"] = owner.string_at({"apiVersion"});
  reference["kind"] = owner.string_at({"kind"});
  reference["name"] = owner.string_at({"metadata", "name"});
  reference["uid"] = owner.string_at({"metadata", "uid"});
  return reference;
}

std::string run_of(const json::Value& object) {
  return std::string(object.string_at({"metadata", "annotations", kRunNote}));
}

// The ended job of this name whose place the new one takes.
std::optional<JobRecord> job_before(const JobRecords& records, const JobRecord& record) {
  auto before = records.load_set_aside(record.name);
  if (!before || before->backend != record.backend || !has_ended(before->state)) return {};
  return *std::move(before);
}

Status name_taken(const ClusterLink& link, const json::Value& object, const Status& why) {
  return make_status(Code::kAlreadyExists,
                     "{} {} is there already in the namespace {} of the cluster {}; it was left "
                     "alone, choose another --name ({})",
                     object.string_at({"kind"}), object.string_at({"metadata", "name"}),
                     link.space(), link.name(), why.message());
}

Status explain_refusal(const ClusterLink& link, const json::Value& object, const Status& why) {
  if (why.code() == Code::kAlreadyExists || why.code() == Code::kConflict) {
    return name_taken(link, object, why);
  }
  if (why.code() != Code::kNotFound) return why;
  if (why.message().find("namespaces \"") != std::string::npos) {
    return make_status(Code::kNotFound,
                       "the cluster {} has no namespace {}; --namespace names another", link.name(),
                       link.space());
  }
  if (object.string_at({"kind"}) != "DIJob") return why;
  return make_status(Code::kNotFound,
                     "the cluster {} has no type DIJob: install the operator (docs/dijob.md), or "
                     "use --backend job ({})",
                     link.name(), why.message());
}

constexpr std::chrono::seconds kGoneWithin{90};

Result<json::Value> create_object(ClusterLink& link, const json::Value& object) {
  const kube::Resource& resource = resource_of(object.string_at({"kind"}));
  auto made = link.create(resource, object);
  if (!made) return failure(explain_refusal(link, object, made.error()));
  return made;
}

// What the ended job before this one has left is in the way only if it was ours.
Status make_room(ClusterLink& link, const json::Value& owner, BackendKind kind,
                 const JobRecords& records, const JobRecord& record) {
  const auto before = job_before(records, record);
  if (!before) return {};
  const auto there = link.get(resource_of(owner.string_at({"kind"})),
                              std::string(owner.string_at({"metadata", "name"})));
  if (!there || run_of(*there) != before->data.string_at({"run"})) return {};
  DIVISI_TRY_STATUS(delete_objects(link, kind, *before));
  return wait_until_gone(link, kind, *before, kGoneWithin);
}

void keep_object(JobRecord& record, const json::Value& made) {
  json::Value entry;
  entry["kind"] = made.string_at({"kind"});
  entry["name"] = made.string_at({"metadata", "name"});
  entry["uid"] = made.string_at({"metadata", "uid"});
  if (is_owner_kind(made.string_at({"kind"}))) append(record.data, "uids", entry["uid"]);
  append(record.data, "objects", std::move(entry));
}

Status create_all(ClusterLink& link, std::vector<json::Value> objects, const JobRecords& records,
                  JobRecord& record) {
  const std::string run(record.data.string_at({"run"}));
  json::Value owner;
  for (json::Value& object : objects) {
    object["metadata"]["annotations"][kRunNote] = run;
    if (!owner.is_null()) {
      object["metadata"]["ownerReferences"] = json::Array{reference_to(owner)};
    }
    auto made = create_object(link, object);
    if (!made) return made.error();
    // An answer has both only where the request had them.
    (*made)["apiVersion"] = object.string_at({"apiVersion"});
    (*made)["kind"] = object.string_at({"kind"});
    if (owner.is_null()) owner = *made;
    keep_object(record, *made);
    DIVISI_TRY_STATUS(records.save(record));
  }
  record.data["started"] = true;
  record.state = JobState::kStarting;
  return records.save(record);
}

}  // namespace

Status create_job(ClusterLink& link, const RunJob& job, const PackageCut* package,
                  const JobRecords& records, JobRecord& record) {
  const auto zip = zip_for_config_map(package);
  if (!zip) return zip.error();
  DIVISI_TRY_STATUS(link.check_rights(job.backend));
  std::vector<json::Value> objects = objects_of(job, *zip);
  DIVISI_TRY_STATUS(make_room(link, objects.front(), job.backend, records, record));
  // Before anything is made, so that it is found again whenever we are killed.
  record.data["run"] = random_text();
  DIVISI_TRY_STATUS(records.save(record));
  const Status status = create_all(link, std::move(objects), records, record);
  if (status.ok()) return {};
  const Status undone = delete_objects(link, job.backend, record);
  if (undone.ok()) (void)wait_until_gone(link, job.backend, record, kGoneWithin);
  return undone.ok() ? status
                     : make_status(status.code(), "{}; what was made is still there: {}",
                                   status.message(), undone.message());
}

Result<std::vector<json::Value>> find_owners(ClusterLink& link, BackendKind kind,
                                             const JobRecord& record) {
  std::vector<json::Value> found;
  if (kind == BackendKind::kDijob) {
    auto job = link.get(dijobs(), record.name);
    if (job) {
      found.push_back(*std::move(job));
    } else if (job.error().code() != Code::kNotFound) {
      return failure(job.error());
    }
  } else {
    DIVISI_TRY(found, link.list(batch_jobs(), pod_labels(kind, record.name)));
  }
  const std::string run(record.data.string_at({"run"}));
  const std::vector<std::string> uids = owner_uids(record);
  std::erase_if(found, [&](const json::Value& job) {
    const bool known = std::ranges::find(uids, job.string_at({"metadata", "uid"})) != uids.end();
    return !known && (run.empty() || run_of(job) != run);
  });
  return found;
}

Status delete_objects(ClusterLink& link, BackendKind kind, const JobRecord& record,
                      std::optional<std::int64_t> grace_seconds) {
  const auto owners = find_owners(link, kind, record);
  if (!owners) return owners.error();
  const kube::Resource& resource = kind == BackendKind::kDijob ? dijobs() : batch_jobs();
  for (const json::Value& owner : *owners) {
    DIVISI_TRY_STATUS(link.remove(resource, std::string(owner.string_at({"metadata", "name"})),
                                  std::string(owner.string_at({"metadata", "uid"}))));
  }
  const json::Value* const made = record.data.find("objects");
  if (made != nullptr && made->as_array() != nullptr) {
    for (const json::Value& object : *made->as_array()) {
      if (is_owner_kind(object.string_at({"kind"}))) continue;
      DIVISI_TRY_STATUS(link.remove(resource_of(object.string_at({"kind"})),
                                    std::string(object.string_at({"name"})),
                                    std::string(object.string_at({"uid"}))));
    }
  }
  if (!grace_seconds) return {};
  auto pods = link.list(kube::resources::pods(), pod_labels(kind, record.name));
  if (!pods) return pods.error();
  for (const json::Value& pod : pods_of(*std::move(pods), owner_uids(record))) {
    DIVISI_TRY_STATUS(link.remove(kube::resources::pods(),
                                  std::string(pod.string_at({"metadata", "name"})),
                                  std::string(pod.string_at({"metadata", "uid"})), grace_seconds));
  }
  return {};
}

Status wait_until_gone(ClusterLink& link, BackendKind kind, const JobRecord& record,
                       std::chrono::seconds within) {
  constexpr std::chrono::milliseconds kLookAgain{100};
  const auto deadline = std::chrono::steady_clock::now() + within;
  while (true) {
    const auto owners = find_owners(link, kind, record);
    if (!owners) return owners.error();
    auto listed = link.list(kube::resources::pods(), pod_labels(kind, record.name));
    if (!listed) return listed.error();
    const auto pods = pods_of(*std::move(listed), owner_uids(record));
    if (owners->empty() && pods.empty()) return {};
    if (std::chrono::steady_clock::now() >= deadline) {
      return make_status(Code::kTimeout, "{} of {} was deleted and is still there after {} s",
                         pods.empty()
                             ? "the job object"
                             : fmt::format("pod {}", pods.front().string_at({"metadata", "name"})),
                         record.name, within.count());
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace divisi::run
