// JobFollower: keeps the links of a node in step with its DIJob, whose pods come and go. Made where
// the operator's variables are there and DIVISI_MEMBERSHIP is not "off". Loop only.
#pragma once

#include "io/reactor.h"
#include "mesh/node.h"
#include "runtime/member_stream.h"
#include "runtime/roster.h"

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace divisi::runtime {

class JobFollower {
 public:
  struct Options {
    JobLinks links{};
    // How long a node that DI_NODES names may be in no list before main no longer waits for it. An
    // operator makes the pods of a job within a second or two.
    std::chrono::milliseconds absent_grace{5'000};
  };
  using OnGone = std::function<void(int node)>;

  // Both outlive it. `on_gone` runs for each node that is gone for good.
  JobFollower(io::Reactor& reactor, mesh::Node& node, JobServer server, const Options& options,
              OnGone on_gone);

 private:
  void take(const std::vector<Member>& members);
  void dismiss(const std::vector<mesh::PeerPlace>& gone);

  io::Reactor& reactor_;
  mesh::Node& node_;
  const std::chrono::milliseconds absent_grace_;
  const OnGone on_gone_;
  Roster roster_;
  std::unique_ptr<io::Timer> grace_;
  MemberStream stream_;  // last: it calls the others
};

// Of the environment: nothing where there is nobody to ask, or nobody to follow.
std::unique_ptr<JobFollower> follow_job(io::Reactor& reactor, mesh::Node& node,
                                        const JobLinks& links, JobFollower::OnGone on_gone);

}  // namespace divisi::runtime
