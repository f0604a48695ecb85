#include "server/first/api.h"

#include "server/envelope.h"
#include "server/first/batch.h"
#include "server/first/team.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace divisi::server::first {
namespace {

constexpr std::string_view kGot = "successfully get replicas";

// One entry a coordinator; whose pods are whose is said by the owners.
json::Value describe_all(const std::vector<Pod>& pods) {
  std::map<std::string, Replicas> jobs;  // by the uid of the job
  const auto usable = [](const Pod& pod) { return !pod.terminating && !pod.owner_uid.empty(); };
  for (const Pod& pod : pods) {
    if (!usable(pod) || pod.role != Role::kCoordinator) continue;
    jobs[pod.owner_uid] = {pod.space, pod.name, Urls(), Urls()};
  }
  for (const Role role : {Role::kCollector, Role::kLearner, Role::kAggregator}) {
    for (const Pod& pod : pods) {
      const auto job = jobs.find(pod.owner_uid);
      if (!usable(pod) || pod.role != role || job == jobs.end() || is_operators(pod)) continue;
      Replicas& replicas = job->second;
      (role == Role::kCollector ? replicas.collectors : replicas.learners)->push_back(pod.url());
    }
  }
  std::vector<Replicas> all;
  for (auto& [uid, replicas] : jobs) all.push_back(std::move(replicas));
  std::ranges::sort(all, {},
                    [](const Replicas& each) { return std::pair(each.space, each.coordinator); });
  json::Array list;
  for (const Replicas& each : all) list.push_back(to_json(each));
  return list;
}

json::Value describe(const Query& query, const Owner& owner, const std::vector<Worker>& workers) {
  const Team team = sort_out(workers);
  Replicas replicas{query.space, {}, {}, {}};
  if (!query.coordinator.empty()) {
    replicas.coordinator = query.coordinator;
    replicas.collectors = collector_urls(team);
    replicas.learners = learner_urls(team);
    return to_json(replicas);
  }
  replicas.coordinator = query.aggregator;
  Worker aggregator;
  aggregator.pod.uid = owner.pod.string_at({"metadata", "uid"});
  replicas.learners = rank_urls(team, aggregator);
  return to_json(replicas);
}

bool has_ended(const Owner& owner) {
  const std::string_view phase = owner.object.string_at({"status", "phase"});
  return owner.job.deleting || phase == "Succeeded" || phase == "Failed";
}

std::string turn_of(const Job& job) {
  return kube::object_key(job.space, job.name);
}

}  // namespace

// A failed report: whose pods it names, and what was made so far.
struct Api::Reported {
  Asked asked;
  Report report;
  struct Named {
    Owner owner;
    std::set<std::string> pods;
  };
  std::map<std::string, Named> jobs;  // by key
  std::set<std::string> unknown;      // pods that are not there
  Replicas made;
};

Api::Api(kube::Client& client, JobSource& jobs, Authenticator& authenticator,
         const std::string& space, Options options, Count count)
    : authenticator_(authenticator),
      options_(std::move(options)),
      count_(std::move(count)),
      source_(client, jobs, space),
      writer_(client, source_),
      turns_(client.reactor()),
      parts_{source_, writer_, options_, served_} {}

void Api::handle(const std::shared_ptr<http::ServerCall>& call, Subject subject) {
  const Asked asked{call, subject};
  const http::Request& request = call->request();
  const bool replicas = subject == Subject::kReplicas;
  const bool known = request.method == "POST" ||
                     (replicas && (request.method == "GET" || request.method == "DELETE"));
  if (!known) return answer(asked, not_implemented(request.method));
  if (const Status refused = check_caller(request); !refused.ok()) return fail(asked, refused);
  if (!replicas) return recreate(asked);
  if (request.method == "GET") return get(asked);
  if (request.method == "POST") {
    return change(asked, &create_replicas, "successfully create replicas");
  }
  change(asked, &delete_replicas, "successfully delete replicas");
}

Status Api::check_caller(const http::Request& request) const {
  Status status = authenticator_.check_caller(request.headers);
  if (status.ok() || !authenticator_.hides_jobs()) return status;
  return make_status(Code::kUnauthorized,
                     "di-server runs with --auth=job-secret, so this request needs Authorization: "
                     "Bearer <token> with the secret of its job, which clients of v1alpha1 do not "
                     "send: use --auth=none or --auth=token-file for them");
}

void Api::get(const Asked& asked) {
  const auto query = parse_query(asked.call->request().target);
  if (!query) return fail(asked, query.error());
  const bool one = !query->coordinator.empty() || !query->aggregator.empty();
  if (one && query->space.empty()) {
    return fail(asked, make_status(Code::kInvalid, "request param {} needs the param namespace",
                                   query->coordinator.empty() ? "aggregator" : "coordinator"));
  }
  if (one) return get_workers(asked, *query);
  if (!query->name.empty()) return answer(asked, success(kGot));
  get_list(asked, query->space);
}

void Api::get_list(const Asked& asked, const std::string& space) {
  if (authenticator_.hides_jobs()) {
    return fail(asked, make_status(Code::kUnauthorized,
                                   "di-server runs with --auth=job-secret, so only the replicas of "
                                   "one job are shown: add namespace and coordinator"));
  }
  source_.find_pods(space, [this, asked](const Result<std::vector<Pod>>& pods) {
    if (!pods) return fail(asked, pods.error());
    answer(asked, success(kGot, describe_all(*pods)));
  });
}

void Api::get_workers(const Asked& asked, const Query& query) {
  const std::string& pod = query.coordinator.empty() ? query.aggregator : query.coordinator;
  find_allowed(asked, {query.space, pod}, [this, asked, query](const Owner& owner) {
    source_.find_workers(owner,
                         [this, asked, query, owner](const Result<std::vector<Worker>>& workers) {
                           if (!workers) return fail(asked, workers.error());
                           answer(asked, success(kGot, describe(query, owner, *workers)));
                         });
  });
}

void Api::find_allowed(const Asked& asked, const PodName& pod, std::function<void(Owner)> then) {
  source_.find_owner(pod.space, pod.name, allowed(asked, std::move(then)));
}

std::function<void(Result<Owner>)> Api::allowed(const Asked& asked,
                                                std::function<void(Owner)> then) {
  return [this, asked, then = std::move(then)](Result<Owner> owner) {
    if (!owner && owner.error().code() != Code::kInternal && authenticator_.hides_jobs()) {
      return fail(asked, {Code::kUnauthorized, "the bearer token is not the right one"});
    }
    if (!owner) return fail(asked, owner.error());
    const Status right = authenticator_.check_job(asked.call->request().headers, owner->object);
    if (!right.ok()) return fail(asked, right);
    then(*std::move(owner));
  };
}

void Api::change(const Asked& asked, Operate operate, std::string_view message) {
  const auto demand = read_demand(asked.call->request().body);
  if (!demand) return fail(asked, demand.error());
  const Change change{asked, *demand, operate, message};
  find_allowed(asked, {demand->space, demand->coordinator}, [this, change](const Owner& owner) {
    turns_.take(turn_of(owner.job), [this, change](const std::shared_ptr<void>& turn) {
      change_in_turn(change, turn);
    });
  });
}

// The owner is read as it is now: another demand may have been met since this one came.
void Api::change_in_turn(const Change& change, const std::shared_ptr<void>& turn) {
  const auto finished = [this, change, turn](const Outcome& outcome) {
    if (!outcome.status.ok()) return fail(change.asked, outcome.status, outcome.done);
    answer(change.asked, success(change.message, to_json(outcome.done)));
  };
  source_.read_owner(change.demand.space, change.demand.coordinator,
                     allowed(change.asked, [this, change, finished](const Owner& owner) {
                       change.operate(parts_, owner, change.demand, finished);
                     }));
}

void Api::recreate(const Asked& asked) {
  auto report = read_report(asked.call->request().body);
  if (!report) return fail(asked, report.error());
  const auto reported = std::make_shared<Reported>();
  reported->asked = asked;
  reported->report = *std::move(report);
  run_batch(
      reported->report.pods.size(), kWidth,
      [this, reported](std::size_t index, std::function<void(Status)> ended) {
        const std::string& name = reported->report.pods[index];
        source_.find_owner(reported->report.space, name,
                           [reported, name, ended = std::move(ended)](Result<Owner> owner) {
                             if (owner) {
                               auto& job = reported->jobs[turn_of(owner->job)];
                               job.owner = *std::move(owner);
                               job.pods.insert(name);
                               return ended({});
                             }
                             // Pods of others are skipped. One that is not there may have
                             // been deleted.
                             const bool failed = owner.error().code() == Code::kInternal;
                             if (!failed) reported->unknown.insert(name);
                             ended(failed ? std::move(owner).error() : Status());
                           });
      },
      [this, reported](const Status& status) {
        if (!status.ok()) return fail(reported->asked, status);
        find_unknown(reported);
      });
}

// Names that no pod has are looked for among the deleted workers of the job that reports them.
void Api::find_unknown(const std::shared_ptr<Reported>& reported) {
  if (reported->unknown.empty()) return recreate_allowed(reported);
  source_.find_owner(reported->report.space, reported->report.coordinator,
                     [this, reported](Result<Owner> owner) {
                       if (!owner && owner.error().code() == Code::kInternal) {
                         return fail(reported->asked, owner.error());
                       }
                       if (owner && !has_ended(*owner)) {
                         auto& job = reported->jobs[turn_of(owner->job)];
                         job.owner = *std::move(owner);
                         job.pods.merge(reported->unknown);
                       }
                       recreate_allowed(reported);
                     });
}

void Api::recreate_allowed(const std::shared_ptr<Reported>& reported) {
  for (const auto& [key, job] : reported->jobs) {
    const Status allowed =
        authenticator_.check_job(reported->asked.call->request().headers, job.owner.object);
    if (!allowed.ok()) return fail(reported->asked, allowed);
  }
  if (reported->jobs.empty() && authenticator_.hides_jobs()) {
    return fail(reported->asked, {Code::kUnauthorized, "the bearer token is not the right one"});
  }
  reported->made.space = reported->report.space;
  reported->made.coordinator = reported->report.coordinator;
  recreate_jobs(reported);
}

// One job after another; a report is of one job as a rule.
void Api::recreate_jobs(const std::shared_ptr<Reported>& reported) {
  if (reported->jobs.empty()) {
    return answer(reported->asked,
                  success("successfully recreate replicas", to_json(reported->made)));
  }
  const auto job = std::make_shared<Reported::Named>(
      std::move(reported->jobs.extract(reported->jobs.begin()).mapped()));
  turns_.take(turn_of(job->owner.job), [this, reported, job](const std::shared_ptr<void>& turn) {
    rebuild_replicas(
        parts_, job->owner.job, job->pods, [this, reported, turn](const Outcome& outcome) {
          const auto add = [](std::optional<Urls>& to, const std::optional<Urls>& more) {
            if (!more) return;
            if (!to) to = Urls();
            to->insert(to->end(), more->begin(), more->end());
          };
          add(reported->made.collectors, outcome.done.collectors);
          add(reported->made.learners, outcome.done.learners);
          if (!outcome.status.ok()) return fail(reported->asked, outcome.status, reported->made);
          recreate_jobs(reported);
        });
  });
}

void Api::fail(const Asked& asked, const Status& status, const Replicas& done) {
  answer(asked, failed(status, done));
}

void Api::answer(const Asked& asked, http::Response response) {
  count_(*asked.call, subject_name(asked.subject), response.status);
  asked.call->respond(std::move(response));
}

}  // namespace divisi::server::first
