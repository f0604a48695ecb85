// ClusterLink: a cluster and a name space of it, for one thread that waits for each answer.
//
//   DIVISI_TRY(ClusterLink* link, ClusterLink::open(place_of(record)));
//   DIVISI_TRY(json::Value job, link->get(dijobs(), "train"));
//
// Errors are one line: what was asked for, the server's words, what to try.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "kube/session.h"
#include "run/options.h"
#include "run/record.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::run {

const kube::Resource& dijobs();
const kube::Resource& batch_jobs();

// What has to be known to find a cluster again from another shell.
struct ClusterPlace {
  std::string kubeconfig{};   // --kubeconfig
  std::string search_path{};  // KUBECONFIG as it was
  std::string context{};
  std::string name_space{};  // empty: the context's own
};
ClusterPlace place_of(const RunOptions& options);
ClusterPlace place_of(const JobRecord& record);
void keep_place(const ClusterPlace& place, JobRecord& record);

class ClusterLink {
 public:
  // Lives until the program ends; the same place is opened once. Asks nobody.
  static Result<ClusterLink*> open(const ClusterPlace& place);

  const std::string& space() const noexcept { return space_; }
  const std::string& context() const { return session_->config().context; }
  std::string name() const;  // of the cluster, for people
  kube::Session& session() { return *session_; }

  Result<json::Value> get(const kube::Resource& resource, const std::string& name);
  Result<std::vector<json::Value>> list(const kube::Resource& resource, const std::string& labels);
  Result<json::Value> create(const kube::Resource& resource, const json::Value& object);
  Status patch(const kube::Resource& resource, const std::string& name, const json::Value& change,
               const std::string& subresource = {}, kube::PatchType type = kube::PatchType::kMerge);
  // What is not there, or is another object than `uid`, is no failure.
  Status remove(const kube::Resource& resource, const std::string& name, const std::string& uid,
                std::optional<std::int64_t> grace_seconds = std::nullopt);
  // Whether it answers, within a few seconds.
  Status ping();
  // kForbidden names every verb and resource that is missing. What cannot be asked is no failure.
  Status check_rights(BackendKind kind);

 private:
  explicit ClusterLink(std::unique_ptr<kube::Session> session)
      : session_(std::move(session)), space_(session_->config().default_namespace) {}

  Result<json::Value> call(const std::function<void(kube::Done)>& start);
  Status explained(const Status& why) const;

  std::unique_ptr<kube::Session> session_;
  const std::string space_;
  Status away_;  // it did not answer: not asked again for as long as the program lives
};

}  // namespace divisi::run
