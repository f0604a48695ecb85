#include "strict_admission.h"

#include "base/log.h"

namespace divisi::apps {
namespace {

constexpr const char* kBinding = "dijobs.diengine.opendilab.org";
// That an operator has set Deny, and not an administrator.
constexpr const char* kMark = "divisi/strict-admission";
constexpr const char* kMarkPath = "/metadata/annotations/divisi~1strict-admission";

const kube::Resource& bindings() {
  static const kube::Resource resource{.group = "admissionregistration.k8s.io",
                                       .version = "v1",
                                       .plural = "validatingadmissionpolicybindings",
                                       .kind = "ValidatingAdmissionPolicyBinding",
                                       .namespaced = false};
  return resource;
}

}  // namespace

StrictAdmission::StrictAdmission(io::Reactor& reactor, kube::Transport& transport,
                                 io::Duration every, bool wanted)
    : client_(reactor, transport), every_(every), wanted_(wanted) {}

void StrictAdmission::start() {
  if (wanted_) {
    refuse_bad_jobs();
  } else {
    take_back();
  }
}

void StrictAdmission::refuse_bad_jobs() {
  json::Value patch;
  patch["metadata"]["annotations"][kMark] = "true";
  patch["spec"]["validationActions"] = json::Array{json::Value("Deny")};
  client_.patch(bindings(), "", kBinding, kube::PatchType::kMerge, patch,
                {.field_manager = "di-operator"},
                [this](const Result<json::Value>& binding) { refused(binding); });
}

void StrictAdmission::refused(const Result<json::Value>& binding) {
  std::string line = "bad jobs are refused when they are submitted";
  if (!binding && binding.error().code() == Code::kNotFound) {
    line =
        "bad jobs are not refused yet: there is no policy; `kubectl apply -f "
        "deploy/admission.yaml` makes it (Kubernetes 1.30 or newer)";
  } else if (!binding) {
    line = fmt::format("bad jobs may not be refused: {}", binding.error().message());
  }
  if (line != said_) {
    if (binding) {
      log::info("strict admission: {}", line);
    } else {
      log::warning("strict admission: {}", line);
    }
    said_ = std::move(line);
  }
  next_ = client_.reactor().after(every_, [this] { start(); });
}

// The server compares the mark: without it nothing is written.
void StrictAdmission::take_back() {
  json::Array patch;
  patch.emplace_back(json::Object{{"op", "test"}, {"path", kMarkPath}, {"value", "true"}});
  patch.emplace_back(json::Object{{"op", "replace"},
                                  {"path", "/spec/validationActions"},
                                  {"value", json::Array{json::Value("Warn")}}});
  patch.emplace_back(json::Object{{"op", "remove"}, {"path", kMarkPath}});
  client_.patch(bindings(), "", kBinding, kube::PatchType::kJson, std::move(patch),
                {.field_manager = "di-operator"},
                [this](const Result<json::Value>& binding) { taken_back(binding); });
}

void StrictAdmission::taken_back(const Result<json::Value>& binding) {
  if (binding) {
    log::info("strict admission: bad jobs are accepted with a warning again");
    return;
  }
  switch (binding.error().code()) {
    case Code::kNotFound:   // no policy
    case Code::kForbidden:  // nor its role
    case Code::kInvalid:    // no mark
      return;
    default: next_ = client_.reactor().after(every_, [this] { take_back(); });
  }
}

}  // namespace divisi::apps
