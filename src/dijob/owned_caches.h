// OwnedCaches: the pods and services that belong to jobs of one generation, found by their job.
//
// Loop only.
#pragma once

#include "dijob/generation.h"
#include "kube/client.h"
#include "kube/informer.h"

#include <functional>
#include <string>
#include <vector>

namespace divisi::dijob {

class OwnedCaches {
 public:
  // `seen` runs with every change: of a pod or service, of which job ("space/name"), and whether it
  // was deleted.
  using Seen = std::function<void(bool is_service, const std::string& job,
                                  const kube::Object& object, bool deleted)>;

  OwnedCaches(kube::Client& client, Generation generation, const std::string& space,
              const Seen& seen);

  void start();
  bool synced() const { return pods_.synced() && services_.synced(); }

  kube::Informer& pods() { return pods_; }
  kube::Informer& services() { return services_; }
  const kube::Informer& pods() const { return pods_; }
  std::string owner_of(const kube::Object& object) const;
  std::vector<kube::ObjectPtr> pods_of(const std::string& job) const;
  std::vector<kube::ObjectPtr> services_of(const std::string& job) const;
  // Jobs with pods on that node that are being deleted; on all nodes when none is named.
  std::vector<std::string> jobs_leaving(const std::string& node) const;

 private:
  const Generation generation_;
  kube::Informer pods_;
  kube::Informer services_;
};

}  // namespace divisi::dijob
