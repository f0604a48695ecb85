// Api: the HTTP API of di-server, request in and answer out, on any loop and over any connection.
//
//   Api api(client, metrics, authenticator, options);
//   api.start();
//   http::Server::listen(reactor, where, [&](auto call) { api.handle(std::move(call)); });
//
// Loop only. Requests are answered from the first one on, before the caches are in step. There is
// no leader: any number of servers may answer for the same jobs.
#pragma once

#include "http/server.h"
#include "kube/health.h"
#include "kube/metrics.h"
#include "server/auth.h"
#include "server/first/api.h"
#include "server/job_source.h"
#include "server/job_writer.h"
#include "server/member_streams.h"
#include "server/profiling_writer.h"
#include "server/resize.h"
#include "server/route.h"

#include <map>
#include <memory>
#include <string>

namespace divisi::server {

struct ApiOptions {
  std::string space{};  // the only name space that is followed; empty: all
  std::string service_domain = "svc.cluster.local";
  first::Options first{};
};

class Api {
 public:
  // `metrics` outlives the Api, but is not asked for its text after it.
  Api(kube::Client& client, kube::Metrics& metrics, std::unique_ptr<Authenticator> authenticator,
      ApiOptions options);

  void start() {
    source_.start();
    first_.start();
  }
  bool in_step() const { return source_.in_step() && first_.in_step(); }

  // In this order, around the end of the connections: streams end, then what was reported is
  // written.
  void end_streams() { streams_.end_all(); }
  void drain(std::function<void()> done) { profilings_.drain(std::move(done)); }

  void handle(const std::shared_ptr<http::ServerCall>& call);

 private:
  // One request about a job, on its way to an answer.
  struct Asked {
    std::shared_ptr<http::ServerCall> call;
    Route route;
  };
  // The job it is about: found, decoded and allowed.
  struct About {
    Asked asked;
    JobView view;
    dijob::Job job;
  };
  using Action = void (Api::*)(const About&);

  static Action find_action(std::string_view method, Subject subject);
  void find_job(Asked asked, Action action);

  void get_replicas(const About& about);
  void add_replicas(const About& about) { resize_job(about, Direction::kAdd); }
  void delete_replicas(const About& about) { resize_job(about, Direction::kDelete); }
  void resize_job(const About& about, Direction direction);
  void report_profilings(const About& about);
  void get_members(const About& about);
  void take_trial_post(const About& about);

  std::string describe_members(const json::Value& object) const;
  void answer(const Asked& asked, http::Response response);
  void count(const http::ServerCall& call, std::string_view route, int status);
  void follow_jobs();

  kube::Metrics& metrics_;
  const ApiOptions options_;
  kube::HealthOptions health_;
  std::unique_ptr<Authenticator> authenticator_;
  JobSource source_;
  JobWriter writer_;
  ProfilingWriter profilings_;
  MemberStreams streams_;
  first::Api first_;
  std::map<std::string, int> jobs_by_phase_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server
