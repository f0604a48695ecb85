#include "dijob/operator.h"

#include "base/log.h"
#include "dijob/executor.h"
#include "dijob/job_secret.h"
#include "dijob/names.h"
#include "dijob/node.h"
#include "dijob/observe.h"
#include "dijob/sizes.h"
#include "json/patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
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
// Against a plan that never comes to rest.
constexpr int kMostRounds = 8;

std::uint64_t version_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

kube::InformerOptions owned(const kube::Resource& resource, const OperatorOptions& options) {
  kube::InformerOptions made;
  made.reflector.resource = resource;
  made.reflector.space = options.space;
  made.reflector.label_selector = fmt::format("{}={}", labels::kOperator, labels::kOperatorValue);
  made.transform = strip_owned;
  return made;
}

kube::InformerOptions all_jobs(const OperatorOptions& options) {
  kube::InformerOptions made;
  made.reflector.resource = dijobs();
  made.reflector.space = options.space;
  made.resync_every = options.resync_every;
  made.transform = mark_applied;
  return made;
}

kube::InformerOptions saved_specs(const OperatorOptions& options) {
  kube::InformerOptions made = owned(revisions(), options);
  made.transform = nullptr;
  return made;
}

// Of a node only whether it answers.
kube::InformerOptions all_nodes() {
  kube::InformerOptions made;
  made.reflector.resource = kube::resources::nodes();
  made.transform = [](json::Value& node) {
    const bool lost = is_out_of_service(node);
    const bool silent = is_unreachable(node);
    node.erase("spec");
    node.erase("status");
    node["lost"] = lost;
    node["silent"] = silent;
  };
  return made;
}

}  // namespace

class Operator::Impl {
 public:
  Impl(kube::Client& client, OperatorOptions options)
      : client_(client),
        options_(std::move(options)),
        jobs_(client, all_jobs(options_)),
        pods_(client, owned(kube::resources::pods(), options_)),
        services_(client, owned(kube::resources::services(), options_)),
        revisions_(client, saved_specs(options_)),
        nodes_(client, all_nodes()),
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
    for (kube::Informer* const informer : {&pods_, &services_}) {
      informer->add_index("job",
                          [](const json::Value& object) { return std::vector{owner_key(object)}; });
      const bool services = informer == &services_;
      informer->add_handler(
          {.on_added = [this, services](const auto& now) { seen(services, *now, false); },
           .on_changed = [this, services](const auto&,
                                          const auto& now) { seen(services, *now, false); },
           .on_deleted = [this, services](const auto& last,
                                          bool) { seen(services, *last, true); }});
    }
    revisions_.add_index("job",
                         [](const json::Value& object) { return std::vector{owner_key(object)}; });
    nodes_.add_handler({.on_added = [this](const auto& now) { saw_node(*now); },
                        .on_changed = [this](const auto&, const auto& now) { saw_node(*now); },
                        .on_deleted = [this](const auto& last, bool) { node_changed(last->key()); },
                        .on_synced = [this] { node_changed(""); }});
    const auto owner = [](const kube::Object& object) { return std::vector{owner_key(object)}; };
    controller_.watch(jobs_, [](const kube::Object& job) { return std::vector{job.key()}; });
    controller_.watch(pods_, owner);
    controller_.watch(services_, owner);
    // Nobody's turn comes of these, but without them an edit that cannot run is not known as one.
    controller_.watch(revisions_, [](const kube::Object&) { return std::vector<std::string>{}; });
  }
  ~Impl() { *alive_ = false; }

  void start() {
    jobs_.start();
    pods_.start();
    services_.start();
    revisions_.start();
    if (options_.force_delete_after.count() > 0) nodes_.start();
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
    std::set<std::string> gone{};  // uids of pods that the cache may still show
    io::TimePoint seen_at{};       // first
    io::TimePoint counted_at{};    // when the status was written last
  };
  struct Pass {
    std::string key{};
    kube::Controller::Outcome done{};
    int rounds = 0;
    bool acted = false;  // what the caches will show of it brings the next pass
  };
  using PassPtr = std::shared_ptr<Pass>;

  void seen(bool is_service, const kube::Object& object, bool deleted) {
    const kube::ObjectName name = kube::split_key(object.key());
    const std::string owner = owner_key(object);
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

  // --- nodes ---

  void saw_node(const kube::Object& node) {
    const json::Value value = node.value();
    const bool silent = value.bool_at({"silent"}).value_or(false);
    const bool was = silent_since_.contains(node.key());
    if (silent) silent_since_.try_emplace(node.key(), client_.reactor().now());
    if (!silent) silent_since_.erase(node.key());
    if (silent != was || value.bool_at({"lost"}).value_or(false)) node_changed(node.key());
  }

  // Jobs with pods there that are being deleted; of all nodes when none is named.
  void node_changed(const std::string& node) {
    if (!nodes_.find(node)) silent_since_.erase(node);
    for (const kube::ObjectPtr& each : pods_.all()) {
      if (!is_being_deleted(*each)) continue;
      if (node.empty() || each->value().string_at({"spec", "nodeName"}) == node) {
        controller_.add(owner_key(*each));
      }
    }
  }

  // How long until a pod on that node may be deleted by force; nothing: it answers, or nobody
  // knows.
  std::optional<std::chrono::milliseconds> lost_in(const std::string& node) const {
    if (options_.force_delete_after.count() == 0 || !nodes_.synced() || node.empty()) {
      return std::nullopt;
    }
    const kube::ObjectPtr found = nodes_.find(node);
    if (!found || found->value().bool_at({"lost"}).value_or(false)) {
      return std::chrono::milliseconds(0);
    }
    const auto silent = silent_since_.find(node);
    if (silent == silent_since_.end()) return std::nullopt;
    return std::chrono::ceil<std::chrono::milliseconds>(
        silent->second + options_.force_delete_after - client_.reactor().now());
  }

  // --- passes ---

  // An older job that lives, and some of whose pods have the names of this one's.
  std::string colliding(const json::Value& object) const {
    const auto job = read_job(object);
    if (!job) return {};
    for (const std::string& key : possible_collisions(*job)) {
      const kube::ObjectPtr found = jobs_.find(key);
      if (!found || found->uid() == job->uid) continue;
      const json::Value other = found->value();
      const std::string_view phase = other.string_at({"status", "phase"});
      if (phase == "Succeeded" || phase == "Failed") continue;
      const auto read = read_job(other);
      if (!read || !collide(*job, *read)) continue;
      if (std::pair(read->created, read->uid) < std::pair(job->created, job->uid)) {
        return read->name;
      }
    }
    return {};
  }

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
    Observed observed =
        observe(job, pods_.find_by("job", pass->key), services_.find_by("job", pass->key),
                revisions_.find_by("job", pass->key));
    std::erase_if(memory.gone, [&](const std::string& uid) {
      return std::ranges::find(observed.pods, uid, &Pod::uid) == observed.pods.end();
    });
    std::erase_if(observed.pods, [&](const Pod& pod) { return memory.gone.contains(pod.uid); });
    observed.refused = memory.refused;
    std::erase_if(observed.orphans,
                  [&](const Orphan& each) { return memory.unadopted.contains(each.uid); });
    for (Pod& pod : observed.pods) {
      if (pod.terminating) pod.lost_in = lost_in(pod.node);
    }
    if (job.int_at({"status", "observedGeneration"}) != job.int_at({"metadata", "generation"})) {
      observed.collides_with = colliding(job);
    }
    observed.saved_until = memory.saved_until;
    observed.blocked = memory.blocked;
    observed.made_secret = memory.made_secret;
    if (!secret_key_.empty() &&
        (memory.made_secret || job.string_at({"status", "phase"}).empty())) {
      observed.secret_hash = hash_secret(derive_secret(secret_key_, memory.uid), memory.uid);
    }
    observed.hold = std::max(
        std::chrono::ceil<std::chrono::milliseconds>(memory.held_until - client_.reactor().now()),
        std::chrono::milliseconds(0));
    observed.tell_first = client_.reactor().now() - memory.seen_at >= kTellWithin;
    observed.now = options_.wall_clock();
    observed.names = options_.names;
    Plan made = plan(observed);

    if (made.spec_patch) return write(pass, job, std::move(*made.spec_patch), "", made.events);
    if (made.status && made.told == Told::kFirst) {
      memory.refused.clear();
      return write(pass, job, status_patch(job, *made.status), "status", made.events);
    }
    if (!made.status) {
      for (const Event& event : made.events) tell(job, event);
    }
    if (made.actions.empty()) return settle(pass, job, made);
    auto actions = std::move(made.actions);
    made.actions.clear();
    executor_.run(job, std::move(actions),
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
    client_.patch(dijobs(), job.string_at({"metadata", "namespace"}),
                  job.string_at({"metadata", "name"}), kube::PatchType::kMerge, patch, options,
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
  kube::Informer pods_;
  kube::Informer services_;
  kube::Informer revisions_;
  kube::Informer nodes_;
  std::unordered_map<std::string, io::TimePoint> silent_since_;  // nodes, by when it was seen first
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

const kube::Informer& Operator::pods() const {
  return impl_->pods_;
}

const kube::Controller& Operator::controller() const {
  return impl_->controller_;
}

}  // namespace divisi::dijob
