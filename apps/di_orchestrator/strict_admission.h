// StrictAdmission: keeps the policy of deploy/admission.yaml at refusing bad jobs.
#pragma once

#include "io/reactor.h"
#include "kube/client.h"

#include <memory>
#include <string>

namespace divisi::apps {

// Loop only. Looks now and then: the policy may be applied later than the operator starts, and
// applying the file again sets it back to warnings.
class StrictAdmission {
 public:
  StrictAdmission(io::Reactor& reactor, kube::Transport& transport, io::Duration every);
  void start();

 private:
  void done(const Result<json::Value>& binding);

  kube::Client client_;  // its own: what runs ends with it, without a callback
  const io::Duration every_;
  std::unique_ptr<io::Timer> next_;
  std::string said_{};  // the last line: the same is not said again
};

}  // namespace divisi::apps
