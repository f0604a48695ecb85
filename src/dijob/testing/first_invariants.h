// FirstInvariants: what holds of first-generation jobs at every moment, and once all is quiet.
//
// It sees each change of the store and each request of an operator; the first thing that does not
// hold stays in broken().
#pragma once

#include "dijob/testing/first_server.h"
#include "dijob/testing/sim_cluster.h"

#include <map>
#include <set>
#include <string>

namespace divisi::dijob::testing {

class FirstInvariants {
 public:
  FirstInvariants(SimCluster& cluster, const FirstServer& server)
      : cluster_(cluster), server_(server) {}

  void see(const SimCluster::Change& change);
  void see_request(const http::Request& request);

  // What the coordinators of a job (by uid) have done.
  void coordinator_succeeded(const std::string& job_uid) { succeeded_.insert(job_uid); }
  void coordinator_failed(const std::string& job_uid) { failed_.insert(job_uid); }

  // Nothing has happened for a while, and the job has not ended.
  void check_quiet(const std::string& job);
  // Every job has ended, or was deleted.
  void check_end();

  const std::string& broken() const noexcept { return broken_; }

 private:
  void see_job(const json::Value& object);
  void check_delete(const std::string& pod, const http::Request& request);
  void check_counts(const std::string& job);
  void check_finished(const std::string& job, const json::Value& object);
  template <class... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args);

  SimCluster& cluster_;
  const FirstServer& server_;
  std::map<std::string, std::string> phases_;  // by uid of the job
  std::set<std::string> succeeded_;
  std::set<std::string> failed_;
  std::string broken_;
};

}  // namespace divisi::dijob::testing
