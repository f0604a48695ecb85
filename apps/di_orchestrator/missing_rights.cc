#include "missing_rights.h"

#include "base/log.h"
#include "kube/resource.h"

#include <algorithm>
#include <utility>

namespace divisi::apps {
namespace {

constexpr const char* kReason = "MissingRights";
// Kinds that are listed are few; this many tell enough.
constexpr std::size_t kMostWaiting = 16;

}  // namespace

MissingRights::MissingRights(kube::Client& client, const std::string& component, std::string space,
                             std::string pod)
    : client_(client),
      recorder_(client, {.component = component, .instance = pod}),
      space_(std::move(space)),
      pod_(std::move(pod)) {
  client_.on_refused([this](const Status& why) { refused(why); });
}

MissingRights::~MissingRights() {
  client_.on_refused(nullptr);
  *alive_ = false;
}

void MissingRights::refused(const Status& why) {
  if (outside_) return;
  std::string message =
      why.message() + "; the roles of deploy/divisi.yaml have this right, it is tried again";
  if (about_) return record(message);
  if (waiting_.size() < kMostWaiting && std::ranges::find(waiting_, message) == waiting_.end()) {
    waiting_.push_back(std::move(message));
  }
  if (!std::exchange(asked_, true)) find_pod();
}

// `kubectl describe` shows the events that have the uid of the object.
void MissingRights::find_pod() {
  client_.get(
      kube::resources::pods(), space_, pod_, {}, [this, alive = alive_](Result<json::Value> pod) {
        if (!*alive) return;
        outside_ = !pod && pod.error().code() == Code::kNotFound;
        if (outside_) {
          log::debug("no event tells of missing rights: there is no pod {}/{}", space_, pod_);
          return;
        }
        // Who may not read the pod can still write an event that has its name.
        json::Value about = pod ? *std::move(pod) : json::Value();
        about["apiVersion"] = "v1";
        about["kind"] = "Pod";
        about["metadata"]["namespace"] = space_;
        about["metadata"]["name"] = pod_;
        about_ = std::move(about);
        for (const std::string& message : std::exchange(waiting_, {})) record(message);
      });
}

void MissingRights::record(const std::string& message) {
  recorder_.record(*about_, "Warning", kReason, message);
}

}  // namespace divisi::apps
