#include "strict_admission.h"

#include "base/log.h"

namespace divisi::apps {
namespace {

constexpr const char* kBinding = "dijobs.diengine.opendilab.org";

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
                                 io::Duration every)
    : client_(reactor, transport), every_(every) {}

void StrictAdmission::start() {
  json::Value patch;
  patch["spec"]["validationActions"] = json::Array{json::Value("Deny")};
  client_.patch(bindings(), "", kBinding, kube::PatchType::kMerge, patch,
                {.field_manager = "di-operator"},
                [this](const Result<json::Value>& binding) { done(binding); });
}

void StrictAdmission::done(const Result<json::Value>& binding) {
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

}  // namespace divisi::apps
