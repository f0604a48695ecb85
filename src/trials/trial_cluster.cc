#include "divisi/detail/trial_cluster.h"

#include "kube/session.h"
#include "trials/kube_trials.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <utility>

namespace divisi::detail {
namespace {

using trials::TrialEvent;

constexpr io::Duration kKnownWithin = std::chrono::seconds(30);

struct Right {
  std::string_view group;
  std::string_view resource;
  std::string_view subresource;
  std::string_view verb;
};

// What trials need of their name space.
constexpr std::array kRights{
    Right{"diengine.opendilab.org", "dijobs", "", "create"},
    Right{"diengine.opendilab.org", "dijobs", "", "list"},
    Right{"diengine.opendilab.org", "dijobs", "", "watch"},
    Right{"diengine.opendilab.org", "dijobs", "", "delete"},
    Right{"", "configmaps", "", "create"},
    Right{"", "configmaps", "", "list"},
    Right{"", "configmaps", "", "delete"},
    Right{"", "pods", "", "list"},
    Right{"", "pods", "", "watch"},
    Right{"", "pods", "exec", "get"},
    Right{"", "pods", "log", "get"},
};

const kube::Resource& access_reviews() {
  static const kube::Resource resource{"authorization.k8s.io", "v1", "selfsubjectaccessreviews",
                                       "SelfSubjectAccessReview", false};
  return resource;
}

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw_if_failed(result.error());
  return *std::move(result);
}

std::string_view kind_name(TrialEvent::Kind kind) {
  switch (kind) {
    case TrialEvent::Kind::kStarted: return "started";
    case TrialEvent::Kind::kSuspected: return "suspected";
    case TrialEvent::Kind::kBack: return "back";
    case TrialEvent::Kind::kReports: return "reports";
    case TrialEvent::Kind::kLook: return "look";
    case TrialEvent::Kind::kEnded: return "ended";
    case TrialEvent::Kind::kGone:
    case TrialEvent::Kind::kNotice: break;
  }
  return "notice";
}

std::optional<ClusterFile> file_of(std::optional<trials::PodFile> file) {
  if (!file) return std::nullopt;
  return ClusterFile{std::move(file->path), std::move(file->bytes)};
}

kube::ConfigOptions config_of(const TrialClusterOptions& options, const trials::JobTemplate& jobs) {
  kube::ConfigOptions config;
  config.kubeconfig = options.kubeconfig;
  config.context = options.context;
  config.default_namespace = options.space.empty() ? jobs.space() : options.space;
  return config;
}

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

class TrialCluster::Impl {
 public:
  explicit Impl(const TrialClusterOptions& options)
      : jobs_(value_or_throw(trials::JobTemplate::parse(options.yaml, options.yaml_name,
                                                        options.remote_path, options.reporter))),
        run_(random_name()),
        session_(value_or_throw(kube::Session::open(config_of(options, jobs_)))),
        space_(session_->config().default_namespace) {
    found_ = list(trials::dijobs());
    const auto maps = list(kube::resources::config_maps());
    found_.insert(found_.end(), maps.begin(), maps.end());
    check_rights();
  }

  ~Impl() {
    session_->reactor().run_on_loop([this] { trials_.reset(); });
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void watch(const TrialWatchOptions& options) {
    project_ = options.project;
    const trials::KubeTrialsOptions made{.space = space_,
                                         .project = options.project,
                                         .poll_every = options.poll_every,
                                         .lost_after = options.lost_after,
                                         .time_out = options.time_out,
                                         .require_exit_zero = options.require_exit_zero,
                                         .result_names = options.result_names};
    session_->reactor().run_on_loop([&] {
      trials_ = std::make_unique<trials::KubeTrials>(
          session_->client(), jobs_, made, [this](TrialEvent event) { push(std::move(event)); });
      trials_->start();
    });
    const io::TimePoint deadline = session_->reactor().now() + kKnownWithin;
    value_or_throw(kube::wait_for<bool>(
        session_->reactor(), [&](auto done) { wait_until_known(deadline, std::move(done)); }));
  }

  trials::TrialSpec spec_of(const ClusterTrial& trial) const {
    return {.name = trial.name,
            .trial = trial.trial,
            .task = trial.task,
            .project = project_,
            .study = trial.study,
            .run = run_,
            .config = trial.config,
            .main_file = trial.main_file};
  }

  void post(ClusterEvent event) {
    const std::scoped_lock hold(lock_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  std::optional<ClusterEvent> next(std::chrono::nanoseconds within) {
    std::unique_lock hold(lock_);
    if (!changed_.wait_for(hold, within, [this] { return !events_.empty(); })) return std::nullopt;
    ClusterEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  // From the loop, in the order of the calls.
  void on_loop(std::function<void(trials::KubeTrials&)> work) {
    session_->reactor().post([this, work = std::move(work)] {
      if (trials_ == nullptr) return;
      work(*trials_);
      count();
    });
  }

  bool wait_until_gone(std::chrono::nanoseconds within) {
    session_->reactor().run_on_loop([] {});  // what was posted has begun
    std::unique_lock hold(lock_);
    return changed_.wait_for(hold, within, [this] { return left_ == 0; });
  }

  const trials::JobTemplate& jobs() const { return jobs_; }
  const std::vector<FoundObject>& found() const { return found_; }

 private:
  std::vector<FoundObject> list(const kube::Resource& resource) {
    const auto listed = session_->get_path(resource.path(space_),
                                           "application/json;as=PartialObjectMetadataList;"
                                           "g=meta.k8s.io;v=v1,application/json");
    if (!listed) throw_if_failed(explained(listed.error(), resource));
    std::vector<FoundObject> found;
    const json::Value* items = listed->find("items");
    if (items == nullptr || items->as_array() == nullptr) return found;
    for (const json::Value& item : *items->as_array()) {
      const auto text = [&item](std::string_view map, std::string_view key) {
        return std::string(item.string_at({"metadata", map, key}));
      };
      found.push_back({.kind = resource.kind,
                       .name = std::string(item.string_at({"metadata", "name"})),
                       .project = text("labels", trials::kProjectLabel),
                       .config = text("annotations", trials::kConfigNote),
                       .trial = text("labels", trials::kTrialLabel)});
    }
    return found;
  }

  Status explained(const Status& why, const kube::Resource& resource) const {
    const std::string where = fmt::format("the cluster of {}", session_->config().described_by);
    if (why.code() == Code::kNotFound) {
      return make_status(Code::kNotFound,
                         "{} has no {}: install the operator (docs/orchestrator.md) ({})", where,
                         resource.plural, why.message());
    }
    if (why.code() == Code::kForbidden || why.code() == Code::kUnauthorized) {
      return why.with_context(where + " does not let you run trials");
    }
    return why.with_context(where + " cannot be used");
  }

  void check_rights() {
    std::string missing;
    for (const Right& right : kRights) {
      json::Value review = json::Object{{"apiVersion", "authorization.k8s.io/v1"},
                                        {"kind", "SelfSubjectAccessReview"}};
      json::Value& asked = review["spec"]["resourceAttributes"];
      asked["namespace"] = space_;
      asked["group"] = right.group;
      asked["resource"] = right.resource;
      asked["subresource"] = right.subresource;
      asked["verb"] = right.verb;
      const auto answer = session_->call([&](kube::Done done) {
        session_->client().create(access_reviews(), {}, review, {}, std::move(done));
      });
      // A server that does not answer this will say no when it is asked to act.
      if (!answer || answer->bool_at({"status", "allowed"}).value_or(true)) continue;
      missing += fmt::format("{}{} {}{}{}", missing.empty() ? "" : ", ", right.verb, right.resource,
                             right.subresource.empty() ? "" : "/", right.subresource);
    }
    if (missing.empty()) return;
    throw_if_failed(make_status(
        Code::kForbidden,
        "the cluster of {} does not let you run trials in the namespace {}: you may not {}",
        session_->config().described_by, space_, missing));
  }

  // On the loop.
  void wait_until_known(io::TimePoint deadline, const std::function<void(Result<bool>)>& done) {
    if (trials_->synced()) {
      known_timer_.reset();
      return done(true);
    }
    if (session_->reactor().now() >= deadline) {
      Status why = trials_->trouble();
      if (why.ok()) why = Status(Code::kTimeout, "the cluster did not tell what it has");
      return done(failure(std::move(why)));
    }
    known_timer_ = session_->reactor().after(std::chrono::milliseconds(10), [this, deadline, done] {
      wait_until_known(deadline, done);
    });
  }

  // On the loop.
  void count() {
    const std::scoped_lock hold(lock_);
    left_ = trials_->left();
    changed_.notify_all();
  }

  void push(TrialEvent event) {
    if (event.kind == TrialEvent::Kind::kGone) return count();
    post({.kind = std::string(kind_name(event.kind)),
          .name = std::move(event.name),
          .status = std::move(event.status),
          .text = std::move(event.text),
          .result = file_of(std::move(event.found.result)),
          .side = file_of(std::move(event.found.side))});
  }

  const trials::JobTemplate jobs_;
  const std::string run_;  // tells what this scheduler made from what others did
  std::unique_ptr<kube::Session> session_;
  std::string space_;
  std::string project_;  // constant after watch()
  std::vector<FoundObject> found_;
  // Of the loop.
  std::unique_ptr<trials::KubeTrials> trials_;
  std::unique_ptr<io::Timer> known_timer_;

  std::mutex lock_;
  std::condition_variable changed_;
  // Guarded by lock_.
  std::deque<ClusterEvent> events_;
  std::size_t left_ = 0;  // trials that have objects
};

TrialCluster::TrialCluster(const TrialClusterOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
TrialCluster::~TrialCluster() = default;

const std::string& TrialCluster::name() const {
  return impl_->jobs().name();
}
const std::string& TrialCluster::remote_path() const {
  return impl_->jobs().remote_path();
}
std::string TrialCluster::pod_name(std::string_view task_name) const {
  return impl_->jobs().pod_name(task_name);
}
void TrialCluster::check_names(std::string_view project, std::string_view longest) const {
  throw_if_failed(impl_->jobs().check_names(project, longest));
}
std::string TrialCluster::job_file(const ClusterTrial& trial) const {
  return value_or_throw(impl_->jobs().fill(impl_->spec_of(trial))).yaml();
}
std::vector<FoundObject> TrialCluster::found() const {
  return impl_->found();
}
void TrialCluster::watch(const TrialWatchOptions& options) {
  impl_->watch(options);
}
void TrialCluster::post(const std::string& name) {
  impl_->post({.kind = "begin", .name = name});
}
void TrialCluster::run(const ClusterTrial& trial) {
  impl_->on_loop([spec = impl_->spec_of(trial)](trials::KubeTrials& trials) { trials.run(spec); });
}
void TrialCluster::adopt(const std::string& name) {
  impl_->on_loop([name](trials::KubeTrials& trials) { trials.adopt(name); });
}
void TrialCluster::discard(const std::string& name) {
  impl_->on_loop([name](trials::KubeTrials& trials) { trials.discard(name); });
}
void TrialCluster::judge(const std::string& name, int verdict, const std::string& why) {
  impl_->on_loop([name, verdict, why](trials::KubeTrials& trials) {
    trials.judge(name, static_cast<trials::Verdict>(verdict), why);
  });
}
void TrialCluster::cancel(const std::string& name) {
  impl_->on_loop([name](trials::KubeTrials& trials) { trials.cancel(name); });
}
std::optional<ClusterEvent> TrialCluster::next(std::chrono::nanoseconds within) {
  return impl_->next(within);
}
bool TrialCluster::wait_until_gone(std::chrono::nanoseconds within) {
  return impl_->wait_until_gone(within);
}

}  // namespace divisi::detail
