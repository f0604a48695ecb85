#include "server/api.h"

#include "dijob/sizes.h"
#include "server/body.h"
#include "server/envelope.h"
#include "server/peers.h"
#include "server/trial_posts.h"

#include <array>
#include <string_view>
#include <utility>

namespace divisi::server {
namespace {

http::Response plain_404() {
  return {404, {{"Content-Type", "text/plain; charset=utf-8"}}, "404 page not found\n"};
}

bool is_health(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  return path == "/healthz" || path == "/livez" || path == "/readyz" || path == "/metrics";
}

bool wants_stream(const http::Request& request, const Route& route) {
  return route.watch ||
         request.headers.get("Accept").find("text/event-stream") != std::string_view::npos;
}

// Labels have few values, whatever strangers send.
std::string_view known_method(std::string_view method) {
  constexpr std::array<std::string_view, 5> kMethods{"GET", "POST", "DELETE", "PUT", "PATCH"};
  for (const std::string_view known : kMethods) {
    if (method == known) return known;
  }
  return "other";
}

}  // namespace

Api::Api(kube::Client& client, kube::Metrics& metrics, std::unique_ptr<Authenticator> authenticator,
         ApiOptions options)
    : metrics_(metrics),
      options_(std::move(options)),
      authenticator_(std::move(authenticator)),
      source_(client, options_.space),
      writer_(client, source_),
      profilings_(client.reactor(), writer_),
      streams_(client.reactor(), source_,
               [this](const json::Value& object) { return describe_members(object); }),
      first_(client, source_, *authenticator_, options_.space, options_.first,
             [this](const http::ServerCall& call, std::string_view route, int status) {
               count(call, route, status);
             }) {
  health_.healthy["ping"] = [] { return Status(); };
  health_.ready["caches"] = [this] {
    if (in_step()) return Status();
    for (const kube::Informer* const cache :
         {&std::as_const(source_.jobs()), &std::as_const(source_.pods()), &first_.pods()}) {
      const Status& why = cache->reflector().last_error();
      if (!why.ok()) return make_status(Code::kUnavailable, "{}", why.message());
    }
    return make_status(Code::kUnavailable, "jobs and pods are being listed");
  };
  health_.metrics = &metrics_;
  follow_jobs();
}

void Api::handle(const std::shared_ptr<http::ServerCall>& call) {
  const http::Request& request = call->request();
  if (is_health(request.target)) return call->respond(kube::health_answer(health_, request));
  if (const auto subject = first::find_route(request.target)) return first_.handle(call, *subject);
  auto route = parse_route(request.target);
  const bool known = route || route.error().code() != Code::kNotFound;
  const Action action = route ? find_action(request.method, route->subject) : nullptr;
  if (!known || (route && action == nullptr)) {
    count(*call, "none", 404);
    return call->respond(plain_404());
  }
  if (!route) {
    count(*call, "none", 400);
    return call->respond(failed(route.error()));
  }
  Asked asked{call, *std::move(route)};
  if (const Status status = authenticator_->check_caller(request.headers); !status.ok()) {
    return answer(asked, failed(status));
  }
  find_job(std::move(asked), action);
}

Api::Action Api::find_action(std::string_view method, Subject subject) {
  struct Known {
    std::string_view method;
    Subject subject;
    Action action;
  };
  static constexpr std::array kActions{
      Known{"GET", Subject::kReplicas, &Api::get_replicas},
      Known{"POST", Subject::kReplicas, &Api::add_replicas},
      Known{"DELETE", Subject::kReplicas, &Api::delete_replicas},
      Known{"POST", Subject::kProfilings, &Api::report_profilings},
      Known{"GET", Subject::kMembers, &Api::get_members},
      Known{"POST", Subject::kTrial, &Api::take_trial_post},
  };
  for (const Known& known : kActions) {
    if (known.method == method && known.subject == subject) return known.action;
  }
  return nullptr;
}

void Api::find_job(Asked asked, Action action) {
  const JobId id = asked.route.id;
  source_.find_job(id, [this, asked = std::move(asked), action,
                        alive = std::weak_ptr(alive_)](Result<JobView> view) {
    if (alive.expired()) return;
    if (!view && view.error().code() == Code::kNotFound && authenticator_->hides_jobs()) {
      return answer(asked, failed({Code::kUnauthorized, "the bearer token is not the right one"}));
    }
    if (!view) return answer(asked, failed(view.error()));
    const Status allowed = authenticator_->check_job(asked.call->request().headers, view->object);
    if (!allowed.ok()) return answer(asked, failed(allowed));
    auto job = dijob::read_job(view->object);
    if (!job) return answer(asked, failed({Code::kInvalid, job.error().message()}));
    dijob::use_chosen_size(*job, view->object);
    const Status generation = check_generation(asked.route.id, *job, view->object);
    if (!generation.ok()) return answer(asked, failed(generation));
    (this->*action)({asked, *std::move(view), *std::move(job)});
  });
}

void Api::get_replicas(const About& about) {
  source_.find_pods(
      about.view, about.job, [this, about, alive = std::weak_ptr(alive_)](const auto& pods) {
        if (alive.expired()) return;
        if (!pods) return answer(about.asked, failed(pods.error()));
        answer(about.asked, success("successfully get replicas",
                                    peer_addresses({about.view.object, about.job, *pods})));
      });
}

void Api::resize_job(const About& about, Direction direction) {
  auto request = read_resize(about.asked.call->request().body, direction);
  if (!request) return answer(about.asked, failed(request.error()));
  dijob::ClusterNames names;
  names.service_domain = options_.service_domain;
  const auto change = [id = about.asked.route.id, request = *std::move(request),
                       names](const json::Value& object) -> Result<std::optional<Patch>> {
    DIVISI_TRY(const dijob::Job job, dijob::read_job(object));
    if (const Status same = check_generation(id, job, object); !same.ok()) return failure(same);
    DIVISI_TRY(Patch patch, resize(object, job, request, names));
    return patch;
  };
  writer_.write(
      about.asked.route.id, change,
      [this, asked = about.asked, direction, alive = std::weak_ptr(alive_)](const Status& outcome) {
        if (alive.expired()) return;
        if (!outcome.ok()) return answer(asked, failed(outcome));
        answer(asked, success(direction == Direction::kAdd ? "successfully add replicas"
                                                           : "successfully delete replicas"));
      });
}

void Api::report_profilings(const About& about) {
  const auto report = read_object(about.asked.call->request().body);
  if (!report) return answer(about.asked, failed(report.error()));
  const Status taken = profilings_.report(about.asked.route.id, about.view.object, *report);
  answer(about.asked, taken.ok() ? success("successfully report profilings") : failed(taken));
}

// Answered when it is written: whoever was told "taken" finds it again after any crash.
void Api::take_trial_post(const About& about) {
  const auto post = read_object(about.asked.call->request().body);
  if (!post) return answer(about.asked, failed(post.error()));
  if (const Status bad = check_trial_post(*post); !bad.ok()) {
    return answer(about.asked, failed(bad));
  }
  const auto change = [id = about.asked.route.id,
                       post = *post](const json::Value& object) -> Result<std::optional<Patch>> {
    DIVISI_TRY(const dijob::Job job, dijob::read_job(object));
    if (const Status same = check_generation(id, job, object); !same.ok()) return failure(same);
    Patch patch;
    patch.subresource = "status";
    patch.body["status"] = trial_patch(object, post);
    return patch;
  };
  writer_.write(about.asked.route.id, change,
                [this, asked = about.asked, alive = std::weak_ptr(alive_)](const Status& outcome) {
                  if (alive.expired()) return;
                  answer(asked, outcome.ok() ? success("successfully take the post of the trial")
                                             : failed(outcome));
                });
}

void Api::get_members(const About& about) {
  source_.find_pods(
      about.view, about.job, [this, about, alive = std::weak_ptr(alive_)](const auto& pods) {
        if (alive.expired()) return;
        const Asked& asked = about.asked;
        if (!pods) return answer(asked, failed(pods.error()));
        json::Value members =
            peer_members({about.view.object, about.job, *pods}, options_.service_domain);
        if (!wants_stream(asked.call->request(), asked.route)) {
          return answer(asked, success("successfully get members", std::move(members)));
        }
        count(*asked.call, "members", 200);
        streams_.add(asked.call, asked.route.id, about.view.object, json::print(members));
      });
}

std::string Api::describe_members(const json::Value& object) const {
  auto job = dijob::read_job(object);
  if (!job) return {};
  dijob::use_chosen_size(*job, object);
  return json::print(
      peer_members({object, *job, source_.cached_pods(*job)}, options_.service_domain));
}

void Api::answer(const Asked& asked, http::Response response) {
  count(*asked.call, subject_name(asked.route.subject), response.status);
  asked.call->respond(std::move(response));
}

void Api::count(const http::ServerCall& call, std::string_view route, int status) {
  metrics_
      .counter("divisi_server_requests_total", "Requests that di-server has answered.",
               {{"route", std::string(route)},
                {"method", std::string(known_method(call.request().method))},
                {"code", std::to_string(status)}})
      .add();
}

void Api::follow_jobs() {
  const auto weak = std::weak_ptr(alive_);
  const auto moved = [this, weak](const kube::ObjectPtr& job, int by) {
    if (weak.expired()) return;
    const json::Value object = job->value();
    const std::string_view phase = object.string_at({"status", "phase"});
    jobs_by_phase_[std::string(phase.empty() ? "Pending" : phase)] += by;
  };
  kube::Handler handler;
  handler.on_added = [moved](const kube::ObjectPtr& job) { moved(job, 1); };
  handler.on_changed = [moved](const kube::ObjectPtr& before, const kube::ObjectPtr& now) {
    moved(before, -1);
    moved(now, 1);
  };
  handler.on_deleted = [moved](const kube::ObjectPtr& last, bool) { moved(last, -1); };
  source_.jobs().add_handler(std::move(handler));

  for (const char* phase :
       {"Pending", "Starting", "Running", "Restarting", "Rescheduling", "Succeeded", "Failed"}) {
    metrics_.gauge("divisi_server_jobs", "DIJobs by phase.",
                   [this, weak, phase] {
                     if (weak.expired()) return 0.0;
                     const auto found = jobs_by_phase_.find(phase);
                     return found == jobs_by_phase_.end() ? 0.0
                                                          : static_cast<double>(found->second);
                   },
                   {{"phase", phase}});
  }
  metrics_.gauge("divisi_server_member_streams", "Open streams of members.", [this, weak] {
    return weak.expired() ? 0.0 : static_cast<double>(streams_.size());
  });
}

}  // namespace divisi::server
