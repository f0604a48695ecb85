#include "dijob/owned_caches.h"

#include "dijob/first/observe.h"
#include "dijob/first/pod.h"
#include "dijob/observe.h"

#include <utility>

namespace divisi::dijob {
namespace {

constexpr std::string_view kByJob = "job";

kube::InformerOptions owned(const kube::Resource& resource, Generation generation,
                            const std::string& space, std::function<void(json::Value&)> strip) {
  kube::InformerOptions made;
  made.reflector.resource = resource;
  made.reflector.space = space;
  made.reflector.label_selector = owned_selector(generation);
  made.transform = std::move(strip);
  return made;
}

}  // namespace

OwnedCaches::OwnedCaches(kube::Client& client, Generation generation, const std::string& space,
                         const Seen& seen)
    : generation_(generation),
      pods_(client, owned(kube::resources::pods(), generation, space,
                          generation == Generation::kFirst ? first::strip_pod : strip_owned)),
      services_(client,
                owned(kube::resources::services(), generation, space,
                      generation == Generation::kFirst ? first::strip_service : strip_owned)) {
  for (kube::Informer* const informer : {&pods_, &services_}) {
    informer->add_index(std::string(kByJob), [generation](const json::Value& object) {
      return std::vector{owner_key(generation, object)};
    });
    const bool services = informer == &services_;
    const auto tell = [this, seen, services](const kube::Object& object, bool deleted) {
      seen(services, owner_of(object), object, deleted);
    };
    informer->add_handler(
        {.on_added = [tell](const auto& now) { tell(*now, false); },
         .on_changed = [tell](const auto&, const auto& now) { tell(*now, false); },
         .on_deleted = [tell](const auto& last, bool) { tell(*last, true); }});
  }
}

void OwnedCaches::start() {
  pods_.start();
  services_.start();
}

std::string OwnedCaches::owner_of(const kube::Object& object) const {
  return owner_key(generation_, object);
}

std::vector<kube::ObjectPtr> OwnedCaches::pods_of(const std::string& job) const {
  return pods_.find_by(kByJob, job);
}

std::vector<kube::ObjectPtr> OwnedCaches::services_of(const std::string& job) const {
  return services_.find_by(kByJob, job);
}

std::vector<std::string> OwnedCaches::jobs_leaving(const std::string& node) const {
  std::vector<std::string> jobs;
  for (const kube::ObjectPtr& each : pods_.all()) {
    if (!is_being_deleted(*each)) continue;
    if (node.empty() || each->value().string_at({"spec", "nodeName"}) == node) {
      jobs.push_back(owner_of(*each));
    }
  }
  return jobs;
}

}  // namespace divisi::dijob
