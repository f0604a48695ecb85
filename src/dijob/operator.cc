#include "dijob/operator.h"

#include "base/log.h"
#include "dijob/draft.h"
#include "dijob/executor.h"
#include "dijob/first/observe.h"
#include "dijob/generation.h"
#include "dijob/job_secret.h"
#include "dijob/names.h"
#include "dijob/node_watch.h"
#include "dijob/observe.h"
#include "dijob/owned_caches.h"
#include "dijob/sizes.h"
#include "json/patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace divisi::dijob {
namespace {

// Counts of pods are told at most so often; phases at once.
constexpr std::chrono::seconds kCountsEvery{1};
// While pods of other jobs are made, the first status of a job may wait so long.
constexpr std::chrono::seconds kTellWithin{5};
// How long no pod is made after the server has refused one for now.
constexpr std::chrono::seconds kFirstHold{1};
constexpr std::chrono::seconds kLongestHold{60};
// How long DDP learners may wait for another aggregator.
constexpr std::chrono::minutes kGroupPatience{3};
// Against a plan that never comes to rest.
constexpr int kMostRounds = 8;

std::uint64_t version_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

kube::InformerOptions all_jobs(const OperatorOptions& options) {
  kube::InformerOptions made;
  made.reflector.resource = dijobs();
  made.reflector.space = options.space;
  made.resync_every = options.resync_every;
  made.transform = [](json::Value& object) {
    mark_applied(object);
    first::mark_policy(object);
  };
  return made;
}

kube::InformerOptions saved_specs(const OperatorOptions& options) {
  kube::InformerOptions made;
  made.reflector.resource = revisions();
  made.reflector.space = options.space;
  made.reflector.label_selector = owned_selector(Generation::kSecond);
  return made;
}

Status no_config(const OperatorOptions& options, const Status& why) {
  return make_status(why.code(),
                     "the aggregator is created with AggregatorConfig {}/{}, which cannot be read: "
                     "{}",
                     options.aggregator_config_space, options.aggregator_config, why.message());
}

}  // namespace

class Operator::Impl {
 public:
  Impl(kube::Client& client, OperatorOptions options)
      : client_(client),
        options_(std::move(options)),
        jobs_(client, all_jobs(options_)),
        owned_(client, Generation::kSecond, options_.space,
               [this](bool is_service, const std::string& owner, const kube::Object& object,
                      bool deleted) { seen(is_service, owner, object, deleted); }),
        revisions_(client, saved_specs(options_)),
        nodes_(client, options_.force_delete_after,
               [this](const std::string& node) { node_changed(node); }),
        expected_(client.reactor()),
        recorder_(client, {.component = "di-operator",
                           .instance = options_.instance,
                           .wall_clock = options_.wall_clock}),
        executor_(client, expected_, recorder_,
                  [this](const std::string& uid) {
                    return secret_key_.empty() ? random_secret() : derive_secret(secret_key_, uid);
                  }),
        controller_(client.reactor(),
                    {.name = "dijob", .workers = options_.workers, .metrics = options_.metrics},
                    [this](const std::string& key, kube::Controller::Outcome done) {
                      start_pass(key, std::move(done));
                    }),
        alive_(std::make_shared<bool>(true)) {
    revisions_.add_index("job", [](const json::Value& object) {
      return std::vector{owner_key(Generation::kSecond, object)};
    });
    const auto owner = [this](const kube::Object& object) {
      return std::vector{owned_.owner_of(object)};
    };
    controller_.watch(jobs_, [](const kube::Object& job) { return std::vector{job.key()}; });
    controller_.watch(owned_.pods(), owner);
    controller_.watch(owned_.services(), owner);
    // Nobody's turn comes of these, but without them an edit that cannot run is not known as one.
    controller_.watch(revisions_, [](const kube::Object&) { return std::vector<std::string>{}; });
  }
  ~Impl() { *alive_ = false; }

  void start() {
    jobs_.start();
    owned_.start();
    revisions_.start();
    nodes_.start();
    controller_.start();
  }

 private:
  friend class Operator;

  // What is remembered of a job between two passes.
  struct Memory {
    json::Value written{};  // as the server answered our last write
    std::string uid{};
    std::vector<RefusedPod> refused{};
    std::string blocked{};  // why pods cannot be made at present
    io::Duration hold{};    // how long after that no pod is made
    io::TimePoint held_until{};
    std::int64_t saved_until = 0;  // the generation whose spec was saved
    bool made_secret = false;      // it was not there
    std::set<std::string> unadopted{};
    std::set<std::string> gone{};                     // uids of pods that the cache may still show
    std::map<std::string, io::TimePoint> orphaned{};  // DDP learners by uid: first seen alone
    io::TimePoint seen_at{};                          // first
    io::TimePoint counted_at{};                       // when the status was written last
  };
  struct Pass {
    std::string key{};
    kube::Controller::Outcome done{};
    Generation generation = Generation::kSecond;
    int rounds = 0;
    bool acted = false;  // what the caches will show of it brings the next pass
  };
  using PassPtr = std::shared_ptr<Pass>;

  void seen(bool is_service, const std::string& owner, const kube::Object& object, bool deleted) {
    const kube::ObjectName name = kube::split_key(object.key());
    if (is_service) {
      if (!deleted) expected_.created(owner, service_expectation(name.name));
      return;
    }
    // The last events of a pod say nothing of the next one of that name.
    if (!deleted && !was_deleted(owner, object.uid())) expected_.created(owner, name.name);
    if (deleted || is_being_deleted(object)) expected_.deleted(owner, object.uid());
  }

  bool was_deleted(const std::string& job, const std::string& uid) const {
    const auto memory = memory_.find(job);
    return memory != memory_.end() && memory->second.gone.contains(uid);
  }

  void node_changed(const std::string& node) {
    for (const std::string& job : owned_.jobs_leaving(node)) controller_.add(job);
    if (first_ == nullptr) return;
    for (const std::string& job : first_->jobs_leaving(node)) controller_.add(job);
  }

  // --- passes ---

  void start_pass(const std::string& key, kube::Controller::Outcome done) {
    auto pass = std::make_shared<Pass>();
    pass->key = key;
    pass->done = std::move(done);
    round(pass);
  }

  // The newest state: the cache may be behind our own writes.
  static json::Value newest(const kube::Object& cached, Memory& memory) {
    const auto written = memory.written.string_at({"metadata", "resourceVersion"});
    if (version_number(written) > version_number(cached.resource_version())) return memory.written;
    memory.written = {};
    return cached.value();
  }

  void round(const PassPtr& pass) {
    const kube::ObjectPtr cached = jobs_.find(pass->key);
    if (!cached) {
      memory_.erase(pass->key);
      expected_.forget(pass->key);
      return pass->done(kube::Requeue{});
    }
    Memory& memory = memory_[pass->key];
    if (memory.uid != cached->uid()) {
      expected_.forget(pass->key);
      memory = {};
      memory.uid = cached->uid();
      memory.seen_at = client_.reactor().now();
    }
    // Until the caches show what was done, every plan would do it again.
    if (!expected_.satisfied(pass->key)) {
      return pass->done(kube::Requeue{kube::Expectations::kBelieved});
    }
    if (++pass->rounds > kMostRounds) return pass->done(kube::Requeue{std::chrono::seconds(1)});

    const json::Value job = newest(*cached, memory);
    pass->generation = generation_of(job);
    if (pass->generation == Generation::kFirst) return first_round(pass, job, memory);
    Observed observed = observe(job, owned_.pods_of(pass->key), owned_.services_of(pass->key),
                                revisions_.find_by("job", pass->key));
    forget_gone(memory, observed.pods, [](const Pod& pod) { return pod.uid; });
    observed.refused = memory.refused;
    std::erase_if(observed.orphans,
                  [&](const Orphan& each) { return memory.unadopted.contains(each.uid); });
    for (Pod& pod : observed.pods) {
      if (pod.terminating) pod.lost_in = nodes_.lost_in(pod.node);
    }
    if (observed.unreadable.ok() && !has_seen_spec(job)) {
      observed.collides_with = older_collision(observed.job, jobs_);
    }
    observed.saved_until = memory.saved_until;
    observed.blocked = memory.blocked;
    observed.made_secret = memory.made_secret;
    if (!secret_key_.empty() && (memory.made_secret || phase_of(job).empty())) {
      observed.secret_hash = hash_secret(derive_secret(secret_key_, memory.uid), memory.uid);
    }
    observed.hold = held(memory);
    observed.tell_first = client_.reactor().now() - memory.seen_at >= kTellWithin;
    observed.now = options_.wall_clock();
    observed.names = options_.names;
    carry_out(pass, job, plan(observed));
  }

  // Pods that are deleted, though the cache still shows them.
  template <class Pods, class Uid>
  static void forget_gone(Memory& memory, Pods& pods, Uid uid_of) {
    std::erase_if(memory.gone, [&](const std::string& uid) {
      return std::ranges::find(pods, uid, uid_of) == pods.end();
    });
    std::erase_if(pods, [&](const auto& pod) { return memory.gone.contains(uid_of(pod)); });
  }

  std::chrono::milliseconds held(const Memory& memory) const {
    return std::max(
        std::chrono::ceil<std::chrono::milliseconds>(memory.held_until - client_.reactor().now()),
        std::chrono::milliseconds(0));
  }

  // --- the first generation ---

  // Its caches are filled when the first job of that kind is seen: most clusters have none.
  bool first_caches_ready(const std::string& key) {
    if (first_ == nullptr) {
      first_ = std::make_unique<OwnedCaches>(client_, Generation::kFirst, options_.space,
                                             [this](bool is_service, const std::string& owner,
                                                    const kube::Object& object, bool deleted) {
                                               seen(is_service, owner, object, deleted);
                                               controller_.add(owner);
                                             });
      const auto continue_waiting = [this] {
        if (!first_->synced()) return;
        for (const std::string& each : std::exchange(waiting_, {})) controller_.add(each);
      };
      first_->pods().add_handler({.on_synced = continue_waiting});
      first_->services().add_handler({.on_synced = continue_waiting});
      first_->start();
    }
    if (first_->synced()) return true;
    waiting_.insert(key);
    return false;
  }

  void first_round(const PassPtr& pass, const json::Value& job, Memory& memory) {
    if (!first_caches_ready(pass->key)) return pass->done(kube::Requeue{});
    first::Observed observed =
        first::observe(job, first_->pods_of(pass->key), first_->services_of(pass->key),
                       revisions_.find_by("job", pass->key));
    forget_gone(memory, observed.pods, [](const first::SeenPod& seen) { return seen.pod.uid; });
    std::erase_if(observed.orphans,
                  [&](const Orphan& each) { return memory.unadopted.contains(each.uid); });
    for (first::SeenPod& seen : observed.pods) {
      if (seen.pod.terminating) seen.lost_in = nodes_.lost_in(seen.pod.node);
    }
    find_orphaned(memory, observed.pods);
    observed.saved_until = memory.saved_until;
    observed.blocked = memory.blocked;
    observed.hold = held(memory);
    observed.now = options_.wall_clock();
    observed.server_url = options_.first_server_url;
    observed.aggregator_at_start = options_.aggregator_at_start;
    if (!first::needs_aggregator_config(observed)) {
      return carry_out(pass, job, first::plan(observed));
    }
    client_.get(first::aggregator_configs(), options_.aggregator_config_space,
                options_.aggregator_config, {},
                [this, alive = alive_, pass, job,
                 observed = std::move(observed)](const Result<json::Value>& config) mutable {
                  if (!*alive) return;
                  observed.aggregator_template = config
                                                     ? first::read_aggregator_template(*config)
                                                     : failure(no_config(options_, config.error()));
                  carry_out(pass, job, first::plan(observed));
                });
  }

  // DDP learners whose aggregator is not there. di-server may still rebuild the group of them.
  void find_orphaned(Memory& memory, std::vector<first::SeenPod>& pods) const {
    std::map<std::string, io::TimePoint> orphaned;
    const io::TimePoint now = client_.reactor().now();
    for (first::SeenPod& seen : pods) {
      const std::string& aggregator = seen.pod.aggregator_uid;
      if (aggregator.empty() || std::ranges::any_of(pods, [&](const first::SeenPod& other) {
            return other.pod.uid == aggregator;
          })) {
        continue;
      }
      const auto known = memory.orphaned.find(seen.pod.uid);
      const io::TimePoint since = known == memory.orphaned.end() ? now : known->second;
      orphaned.emplace(seen.pod.uid, since);
      seen.orphaned_in = std::chrono::ceil<std::chrono::milliseconds>(since + kGroupPatience - now);
    }
    memory.orphaned = std::move(orphaned);
  }

  // --- what a plan says ---

  void carry_out(const PassPtr& pass, const json::Value& job, Plan made) {
    if (made.spec_patch) return write(pass, job, std::move(*made.spec_patch), "", made.events);
    if (made.status && made.told == Told::kFirst) {
      memory_[pass->key].refused.clear();
      return write(pass, job, status_patch(job, *made.status), "status", made.events);
    }
    if (!made.status) {
      for (const Event& event : made.events) tell(job, event);
    }
    if (made.actions.empty()) return settle(pass, job, made);
    auto actions = std::move(made.actions);
    made.actions.clear();
    executor_.run(pass->generation, job, std::move(actions),
                  [this, alive = alive_, pass, job, made](const Executed& outcome) {
                    if (*alive) executed(pass, job, made, outcome);
                  });
  }

  void executed(const PassPtr& pass, const json::Value& job, const Plan& made,
                const Executed& outcome) {
    Memory& memory = memory_[pass->key];
    memory.refused = outcome.refused;
    memory.saved_until = std::max(memory.saved_until, outcome.saved_until);
    memory.made_secret = memory.made_secret || outcome.made_secret;
    memory.unadopted.insert(outcome.unadopted.begin(), outcome.unadopted.end());
    hold(memory, outcome);
    pass->acted = true;
    if (executor_.running() == 0) tell_the_untold();
    if (!outcome.status.ok()) return pass->done(failure(outcome.status));
    memory.gone.insert(outcome.gone.begin(), outcome.gone.end());
    if (!outcome.refused.empty() || !outcome.gone.empty() || !outcome.blocked.empty() ||
        !outcome.unadopted.empty()) {
      return round(pass);
    }
    settle(pass, job, made);
  }

  // What is refused for now is tried again later and later.
  void hold(Memory& memory, const Executed& outcome) {
    if (!outcome.blocked.empty()) {
      memory.blocked = outcome.blocked;
      memory.hold = std::clamp<io::Duration>(memory.hold * 2, kFirstHold, kLongestHold);
      memory.held_until = client_.reactor().now() + memory.hold;
    } else if (outcome.made_pods) {
      memory.blocked.clear();
      memory.hold = {};
    }
  }

  // Everything is done; what nothing rests on is told if it is time.
  void settle(const PassPtr& pass, const json::Value& job, const Plan& made) {
    io::Duration again = made.look_again ? io::Duration(*made.look_again) : io::Duration(0);
    if (made.status) {
      const io::Duration left = until_told(*pass, made.told);
      if (left.count() <= 0) {
        return write(pass, job, status_patch(job, *made.status), "status", made.events);
      }
      if (again.count() == 0 || left < again) again = left;
    }
    pass->done(kube::Requeue{again});
  }

  io::Duration until_told(const Pass& pass, Told told) {
    const Memory& memory = memory_[pass.key];
    const io::TimePoint now = client_.reactor().now();
    if (told == Told::kCounts) return memory.counted_at + kCountsEvery - now;
    const bool others_first = executor_.running() > 0;
    if (!pass.acted && !others_first) return {};
    if (!pass.acted) untold_.insert(pass.key);
    return memory.seen_at + kTellWithin - now;
  }

  void tell_the_untold() {
    for (const std::string& key : std::exchange(untold_, {})) controller_.add(key);
  }

  // Only if nobody has changed the job meanwhile; then another round with what the server says.
  void write(const PassPtr& pass, const json::Value& job, json::Value patch,
             std::string_view subresource, std::vector<Event> events) {
    patch["metadata"]["resourceVersion"] = job.string_at({"metadata", "resourceVersion"});
    patch["metadata"]["uid"] = job.string_at({"metadata", "uid"});
    kube::WriteOptions options;
    options.subresource = subresource;
    options.field_manager = kFieldManager;
    // A merge patch would lose `backoffLimit: null` of a task.
    const bool of_spec = subresource.empty();
    if (of_spec) patch = json::as_json_patch(job, patch);
    client_.patch(dijobs(), job.string_at({"metadata", "namespace"}),
                  job.string_at({"metadata", "name"}),
                  of_spec ? kube::PatchType::kJson : kube::PatchType::kMerge, patch, options,
                  [this, alive = alive_, pass, job,
                   events = std::move(events)](const Result<json::Value>& answer) {
                    if (!*alive) return;
                    if (!answer) {
                      if (answer.error().code() == Code::kNotFound)
                        return pass->done(kube::Requeue{});
                      return pass->done(failure(answer.error()));
                    }
                    for (const Event& event : events) tell(*answer, event);
                    Memory& memory = memory_[pass->key];
                    memory.written = *answer;
                    memory.counted_at = client_.reactor().now();
                    round(pass);
                  });
  }

  static json::Value status_patch(const json::Value& job, const json::Value& status) {
    const json::Value* const before = job.find("status");
    json::Value patch;
    patch["status"] =
        json::make_merge_patch(before == nullptr ? json::Value(json::Object{}) : *before, status);
    return patch;
  }

  void tell(const json::Value& job, const Event& event) {
    recorder_.record(job, event.type, event.reason, event.message);
  }

  kube::Client& client_;
  const OperatorOptions options_;
  std::string secret_key_;
  kube::Informer jobs_;
  OwnedCaches owned_;
  kube::Informer revisions_;
  NodeWatch nodes_;
  std::unique_ptr<OwnedCaches> first_;  // of the first generation
  std::set<std::string> waiting_;       // jobs for its caches
  kube::Expectations expected_;
  kube::EventRecorder recorder_;
  Executor executor_;
  kube::Controller controller_;
  std::unordered_map<std::string, Memory> memory_;
  std::set<std::string> untold_;  // jobs whose status waits for the pods of others
  std::shared_ptr<bool> alive_;
};

Operator::Operator(kube::Client& client, OperatorOptions options)
    : impl_(std::make_unique<Impl>(client, std::move(options))) {}

Operator::~Operator() = default;

void Operator::use_secret_key(std::string key) {
  impl_->secret_key_ = std::move(key);
}

void Operator::start() {
  impl_->start();
}

void Operator::stop(std::function<void()> drained) {
  impl_->controller_.stop(std::move(drained));
}

bool Operator::ready() const {
  return impl_->controller_.ready();
}

const kube::Informer& Operator::jobs() const {
  return impl_->jobs_;
}

std::size_t Operator::pods() const {
  return impl_->owned_.pods().size() + (impl_->first_ ? impl_->first_->pods().size() : 0);
}

const kube::Controller& Operator::controller() const {
  return impl_->controller_;
}

}  // namespace divisi::dijob
