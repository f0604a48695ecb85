// NodeWatch: which nodes do not answer, and since when this process has seen it.
//
// Loop only. A pod that is being deleted stays for good when its node is lost: after some time
// somebody else has to take it away.
#pragma once

#include "kube/client.h"
#include "kube/informer.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

namespace divisi::dijob {

class NodeWatch {
 public:
  // `changed` runs with the name of a node that became silent, lost or well; with "" when all
  // nodes are known. `patience` 0: nodes are not looked at.
  NodeWatch(kube::Client& client, io::Duration patience,
            std::function<void(const std::string& node)> changed);

  void start();

  // How long until a pod on that node may be deleted by force; nothing: it answers, or nobody
  // knows.
  std::optional<std::chrono::milliseconds> lost_in(const std::string& node) const;

 private:
  void saw(const kube::Object& node);

  kube::Client& client_;
  const io::Duration patience_;
  const std::function<void(const std::string& node)> changed_;
  kube::Informer nodes_;
  std::unordered_map<std::string, io::TimePoint> silent_since_;
};

}  // namespace divisi::dijob
