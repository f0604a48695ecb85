// Source: pods and jobs of the first generation, from caches that follow the cluster, and from the
// cluster itself for what the caches do not have.
//
//   source.find_owner("default", "rl-coordinator", [&](Result<Owner> owner) {...});
//   source.find_workers(*owner, [&](Result<std::vector<Worker>> workers) {...});
//
// Loop only. Before the caches are in step, and whenever they would lead to an error, the cluster
// is asked: a server that has just started answers as any other. What this server has changed is
// seen by its next reads, whatever the cache has.
#pragma once

#include "dijob/first/job.h"
#include "dijob/first/pod.h"
#include "kube/client.h"
#include "kube/expectations.h"
#include "kube/informer.h"
#include "server/job_source.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace divisi::server::first {

using dijob::first::Job;
using dijob::first::Pod;
using dijob::first::Role;

// A pod as read, and as the cluster has it.
struct Worker {
  Pod pod{};
  json::Value object{};  // from the cache: without what URLs do not need
};

// A pod that a request names, and the job that owns it.
struct Owner {
  json::Value pod{};
  json::Value object{};  // the DIJob
  Job job{};
  bool live = false;  // read from the cluster just now
};

// On a worker that a demand has chosen to be deleted.
inline constexpr std::string_view kDismissed = "divisi/dismissed";

class Source {
 public:
  // `jobs` has the cache of DIJobs. `space`: the only one that is followed; empty: all.
  Source(kube::Client& client, JobSource& jobs, const std::string& space);

  void start() { pods_.start(); }
  bool in_step() const { return pods_.synced(); }
  const kube::Informer& pods() const noexcept { return pods_; }

  // The job that owns this pod. kNotFound, with the text for the client, when there is no such pod,
  // when no DIJob owns it, or when that is gone; never on the word of a cache. kInvalid: it is no
  // job of the first generation.
  void find_owner(const std::string& space, const std::string& pod,
                  std::function<void(Result<Owner>)> done);
  void read_owner(const std::string& space, const std::string& pod,
                  std::function<void(Result<Owner>)> done);

  // All pods of the job but the coordinator's, by name.
  void find_workers(const Owner& owner, std::function<void(Result<std::vector<Worker>>)> done);
  void read_workers(const Job& job, std::function<void(Result<std::vector<Worker>>)> done);

  // A worker of that job that somebody deleted a short time ago, without a demand of this API; null
  // when it is not known. From the cache, so without most of its spec.
  const Worker* find_gone(const std::string& job_uid, const std::string& pod) const;
  // The GPUs of the deleted pods of a DDP group.
  int gone_gpus(const std::string& aggregator_uid) const;
  // The group is whole again.
  void forget_group(const std::string& aggregator_uid);
  // Another pod has taken the place of this one, which is or soon will be gone.
  void replaced(const Pod& pod);

  // All pods of first-generation jobs, of one name space or, where that is empty, of all.
  void find_pods(const std::string& space, std::function<void(Result<std::vector<Pod>>)> done);

  // Straight from the cluster.
  void read(const kube::Resource& resource, const std::string& space, const std::string& name,
            std::function<void(Result<json::Value>)> done);
  // What each node has of GPUs.
  void read_gpus(std::function<void(Result<std::vector<std::int64_t>>)> done);

  // What this server changes, before and after: see kube/expectations.h. By object_key of the job.
  kube::Expectations& expectations() noexcept { return expectations_; }

 private:
  bool find_cached(const std::string& space, const std::string& pod, Owner& owner) const;
  void read_job_of(json::Value pod, std::function<void(Result<Owner>)> done);
  void list(const kube::Resource& resource, const std::string& space, std::string_view selector,
            std::function<void(Result<json::Value>)> done);
  void follow_pods();
  void remember_gone(const json::Value& object);

  kube::Client& client_;
  JobSource& jobs_;
  kube::Informer pods_;
  kube::Expectations expectations_;
  std::map<std::string, Worker> gone_;  // by the uid of the job and the name of the pod
  std::deque<std::pair<io::TimePoint, std::string>> gone_order_;  // oldest first
  std::set<std::string> replaced_;  // uids of pods whose end is not seen yet
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server::first
