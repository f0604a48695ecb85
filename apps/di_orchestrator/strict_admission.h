// StrictAdmission: makes the policy of deploy/admission.yaml refuse bad jobs, or takes that back.
#pragma once

#include "io/reactor.h"
#include "kube/client.h"

#include <memory>
#include <string>

namespace divisi::apps {

// Loop only. `wanted`: looks now and then, since the policy may be applied later than the operator
// starts, and applying the file again sets it back to warnings. Otherwise what an operator has made
// strict before is made a warning again, once; what somebody else has set to Deny stays.
class StrictAdmission {
 public:
  StrictAdmission(io::Reactor& reactor, kube::Transport& transport, io::Duration every,
                  bool wanted);
  void start();

 private:
  void refuse_bad_jobs();
  void refused(const Result<json::Value>& binding);
  void take_back();
  void taken_back(const Result<json::Value>& binding);

  kube::Client client_;  // its own: what runs ends with it, without a callback
  const io::Duration every_;
  const bool wanted_;
  std::unique_ptr<io::Timer> next_;
  std::string said_{};  // the last line: the same is not said again
};

}  // namespace divisi::apps
