// JobSource: jobs and their pods, from caches that follow the cluster, and from the cluster itself
// for what the caches do not have.
//
//   source.find_job(id, [&](Result<JobView> job) {...});
//   source.find_pods(view, job, [&](Result<std::vector<dijob::Pod>> pods) {...});
//
// Loop only. Before the caches are in step everything is read live, so the first request of a
// server that has just started is answered as right as any later one. A job that was read live has
// its pods read live too: its pods are no older than it is.
#pragma once

#include "dijob/job.h"
#include "dijob/pod.h"
#include "kube/client.h"
#include "kube/informer.h"
#include "server/job_id.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::server {

struct JobView {
  json::Value object{};
  bool live = false;  // read from the cluster just now
};

class JobSource {
 public:
  // `space`: the only one that is followed; empty: all.
  JobSource(kube::Client& client, const std::string& space);

  void start();
  bool in_step() const { return jobs_.synced() && pods_.synced(); }

  // kNotFound: the cluster has no such job. Errors are those of of_cluster().
  void find_job(const JobId& id, std::function<void(Result<JobView>)> done);
  void read_job_live(const JobId& id, std::function<void(Result<JobView>)> done);
  void find_pods(const JobView& view, const dijob::Job& job,
                 std::function<void(Result<std::vector<dijob::Pod>>)> done);

  // From the caches alone.
  std::optional<json::Value> cached_job(const std::string& key) const;
  std::vector<dijob::Pod> cached_pods(const dijob::Job& job) const;

  // To follow changes. `pod_job_keys` says which jobs a pod may belong to.
  kube::Informer& jobs() noexcept { return jobs_; }
  kube::Informer& pods() noexcept { return pods_; }
  static std::vector<std::string> pod_job_keys(const json::Value& pod);

 private:
  kube::Client& client_;
  kube::Informer jobs_;
  kube::Informer pods_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server
