// Api: the routes of the first generation, /v1alpha1/replicas and /v1alpha1/replicas/failed.
//
//   first::Api api(client, jobs, authenticator, space, options, count);
//   if (const auto subject = first::find_route(target)) api.handle(call, *subject);
//
// Loop only. Requests are answered from the first one on, before the caches are in step. There is
// no leader: any number of servers may answer for the same jobs.
#pragma once

#include "http/server.h"
#include "server/auth.h"
#include "server/first/operation.h"
#include "server/first/route.h"
#include "server/first/turns.h"

#include <functional>
#include <memory>
#include <set>
#include <string>

namespace divisi::server::first {

class Api {
 public:
  // Told of every answer.
  using Count =
      std::function<void(const http::ServerCall& call, std::string_view route, int status)>;

  // `jobs` and `authenticator` outlive it.
  Api(kube::Client& client, JobSource& jobs, Authenticator& authenticator, const std::string& space,
      Options options, Count count);

  void start() { source_.start(); }
  bool in_step() const { return source_.in_step(); }
  const kube::Informer& pods() const noexcept { return source_.pods(); }

  void handle(const std::shared_ptr<http::ServerCall>& call, Subject subject);

 private:
  // One request on its way to an answer.
  struct Asked {
    std::shared_ptr<http::ServerCall> call;
    Subject subject;
  };
  using Operate = void (*)(const Parts&, const Owner&, const Demand&, Finished);
  // A demand on its way to be met.
  struct Change {
    Asked asked;
    Demand demand;
    Operate operate;
    std::string_view message;  // of success
  };
  struct PodName {
    std::string space;
    std::string name;
  };
  struct Reported;

  void get(const Asked& asked);
  void get_list(const Asked& asked, const std::string& space);
  void get_workers(const Asked& asked, const Query& query);
  void change(const Asked& asked, Operate operate, std::string_view message);
  void change_in_turn(const Change& change, const std::shared_ptr<void>& turn);
  void recreate(const Asked& asked);
  void find_unknown(const std::shared_ptr<Reported>& reported);
  void recreate_allowed(const std::shared_ptr<Reported>& reported);
  void recreate_jobs(const std::shared_ptr<Reported>& reported);

  // The job that owns the pod, if the caller may ask about it; answers otherwise.
  void find_allowed(const Asked& asked, const PodName& pod, std::function<void(Owner)> then);
  std::function<void(Result<Owner>)> allowed(const Asked& asked, std::function<void(Owner)> then);
  Status check_caller(const http::Request& request) const;
  void fail(const Asked& asked, const Status& status, const Replicas& done = {});
  void answer(const Asked& asked, http::Response response);

  Authenticator& authenticator_;
  const Options options_;
  const Count count_;
  Source source_;
  PodWriter writer_;
  Turns turns_;
  std::set<std::string> served_;
  const Parts parts_;
};

}  // namespace divisi::server::first
