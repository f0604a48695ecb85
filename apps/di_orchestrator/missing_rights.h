// MissingRights: an event on the pod of this process for each list that the API server refuses it.
//
// Loop only. `kubectl describe pod` and `kubectl get events` show it, as the log and /readyz do.
// It is repeated with a growing count for as long as the right is missing. Outside of a cluster
// there is no such pod, and nothing is written.
#pragma once

#include "json/value.h"
#include "kube/client.h"
#include "kube/recorder.h"

#include <optional>
#include <string>
#include <vector>

namespace divisi::apps {

class MissingRights {
 public:
  // `space` and `pod`: where this process runs.
  MissingRights(kube::Client& client, const std::string& component, std::string space,
                std::string pod);
  ~MissingRights();
  MissingRights(const MissingRights&) = delete;
  MissingRights& operator=(const MissingRights&) = delete;

 private:
  void refused(const Status& why);
  void find_pod();
  void record(const std::string& message);

  kube::Client& client_;
  kube::EventRecorder recorder_;
  const std::string space_;
  const std::string pod_;
  bool asked_ = false;                // for the pod
  bool outside_ = false;              // there is no such pod
  std::optional<json::Value> about_;  // the pod, once it is known
  std::vector<std::string> waiting_;  // messages until then
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::apps
