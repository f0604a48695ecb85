#include "runtime/job_follower.h"

#include "base/log.h"

#include <cstdlib>
#include <string_view>
#include <utility>

namespace divisi::runtime {

JobFollower::JobFollower(io::Reactor& reactor, mesh::Node& node, JobServer server,
                         const Options& options, OnGone on_gone)
    : reactor_(reactor),
      node_(node),
      absent_grace_(options.absent_grace),
      on_gone_(std::move(on_gone)),
      roster_(options.links),
      stream_(reactor, std::move(server),
              {.on_members = [this](const auto& members) { take(members); },
               .on_word = [this] { node_.extend_join(); }}) {}

void JobFollower::take(const std::vector<Member>& members) {
  const auto change = roster_.update(members);
  if (!change) return;
  dismiss(change->gone);
  for (const mesh::PeerPlace& place : change->come) node_.welcome(place);
  if (!roster_.has_absent()) {
    grace_.reset();
  } else if (grace_ == nullptr || !change->empty()) {
    grace_ = reactor_.after(absent_grace_, [this] { dismiss(roster_.give_up_absent()); });
  }
}

void JobFollower::dismiss(const std::vector<mesh::PeerPlace>& gone) {
  for (const mesh::PeerPlace& place : gone) {
    log::debug("node {} is not in the job any more", place.node);
    node_.dismiss(place);
    on_gone_(place.node);
  }
}

std::unique_ptr<JobFollower> follow_job(io::Reactor& reactor, mesh::Node& node,
                                        const JobLinks& links, JobFollower::OnGone on_gone) {
  const char* const choice = std::getenv("DIVISI_MEMBERSHIP");
  if (links.topology == Topology::kAlone) return nullptr;
  if (choice != nullptr && std::string_view(choice) == "off") return nullptr;
  auto server = job_server_of_environment();
  if (!server) {
    log::warning("{}; changes of the job's size are not followed", server.error().message());
    return nullptr;
  }
  if (!server->has_value()) return nullptr;
  return std::make_unique<JobFollower>(reactor, node, **std::move(server),
                                       JobFollower::Options{.links = links}, std::move(on_gone));
}

}  // namespace divisi::runtime
