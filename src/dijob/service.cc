// The service that gives each pod its host name, and the secret that all pods of a job share.
#include "dijob/names.h"
#include "dijob/owned.h"
#include "dijob/pod.h"
#include "http/base64.h"

#include <utility>

namespace divisi::dijob {

void add_membership(json::Value& map, const Job& job) {
  map[labels::kOperator] = labels::kOperatorValue;
  map[labels::kJob] = job.name;
}

void set_owned_metadata(json::Value& metadata, const Job& job, const std::string& name) {
  metadata["name"] = name;
  metadata["namespace"] = job.space;
  add_membership(metadata["labels"], job);
  metadata["ownerReferences"] = json::Array{json::Object{{"apiVersion", dijobs().api_version()},
                                                         {"kind", dijobs().kind},
                                                         {"name", job.name},
                                                         {"uid", job.uid},
                                                         {"controller", true},
                                                         {"blockOwnerDeletion", true}}};
}

std::string service_name(const Job& job) {
  return job.form == Form::kTasks ? "di-" + job.name : job.name;
}

std::string secret_name(const Job& job) {
  constexpr std::size_t kPart = 8;  // of a random uid: enough to differ from an older job's
  return fmt::format("{}-secret-{}", job.name, job.uid.substr(0, kPart));
}

json::Value make_service(const Job& job) {
  json::Value service = json::Object{{"apiVersion", "v1"}, {"kind", "Service"}};
  set_owned_metadata(service["metadata"], job, service_name(job));
  if (job.form == Form::kTemplate) service["metadata"]["labels"][labels::kGroupLabel] = job.group;
  json::Value& spec = service["spec"];
  spec["clusterIP"] = "None";
  // Engines dial each other while they start; without this a name resolves only when its pod is
  // ready.
  spec["publishNotReadyAddresses"] = true;
  // Not by group: after an edit of it, pods of both kinds belong to the job.
  add_membership(spec["selector"], job);
  spec["ports"] = json::Array{json::Object{{"name", kPortName}, {"port", kDefaultPort}}};
  return service;
}

bool finds_pods(const json::Value& selector, const Job& job) {
  json::Value wanted(json::Object{});
  add_membership(wanted, job);
  json::Value actual = selector;
  actual.erase(labels::kGroupLabel);
  return json::equivalent(actual, wanted);
}

json::Value make_revision(const Job& job, const json::Value& object) {
  json::Value revision =
      json::Object{{"apiVersion", revisions().api_version()}, {"kind", revisions().kind}};
  constexpr std::size_t kPart = 8;
  set_owned_metadata(revision["metadata"], job,
                     fmt::format("{}-{}-{}", job.name, job.uid.substr(0, kPart), job.generation));
  revision["revision"] = job.generation;
  if (const json::Value* const spec = object.find("spec")) revision["data"]["spec"] = *spec;
  return revision;
}

json::Value make_secret(const Job& job, std::string_view secret) {
  json::Value object = json::Object{{"apiVersion", "v1"}, {"kind", "Secret"}, {"type", "Opaque"}};
  set_owned_metadata(object["metadata"], job, secret_name(job));
  object["data"]["secret"] = http::encode_base64(secret);
  return object;
}

}  // namespace divisi::dijob
