#include "dijob/operator.h"

#include "base/log.h"
#include "dijob/executor.h"
#include "dijob/names.h"
#include "dijob/observe.h"
#include "io/crypto.h"
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
// Against a plan that never comes to rest.
constexpr int kMostRounds = 8;

std::string random_secret() {
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:016x}", io::random_u64());
  return text;
}

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
        expected_(client.reactor()),
        recorder_(client, {.component = "di-operator",
                           .instance = options_.instance,
                           .wall_clock = options_.wall_clock}),
        executor_(client, expected_, recorder_,
                  options_.make_secret ? options_.make_secret : random_secret),
        controller_(client.reactor(), {.name = "dijob", .workers = options_.workers},
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
    const auto owner = [](const kube::Object& object) { return std::vector{owner_key(object)}; };
    controller_.watch(jobs_, [](const kube::Object& job) { return std::vector{job.key()}; });
    controller_.watch(pods_, owner);
    controller_.watch(services_, owner);
  }
  ~Impl() { *alive_ = false; }

  void start() {
    jobs_.start();
    pods_.start();
    services_.start();
    controller_.start();
  }

 private:
  friend class Operator;

  // What is remembered of a job between two passes.
  struct Memory {
    json::Value written{};  // as the server answered our last write
    std::string uid{};
    std::vector<RefusedPod> refused{};
    bool has_secret = false;
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
        observe(job, pods_.find_by("job", pass->key), services_.find_by("job", pass->key));
    std::erase_if(memory.gone, [&](const std::string& uid) {
      return std::ranges::find(observed.pods, uid, &Pod::uid) == observed.pods.end();
    });
    std::erase_if(observed.pods, [&](const Pod& pod) { return memory.gone.contains(pod.uid); });
    observed.refused = memory.refused;
    observed.has_secret = memory.has_secret;
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
    memory.has_secret |= outcome.made_secret;
    memory.refused = outcome.refused;
    pass->acted = true;
    if (executor_.running() == 0) tell_the_untold();
    if (!outcome.status.ok()) return pass->done(failure(outcome.status));
    memory.gone.insert(outcome.gone.begin(), outcome.gone.end());
    if (!outcome.refused.empty() || !outcome.gone.empty()) return round(pass);
    settle(pass, job, made);
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
    options.field_manager = "di-operator";
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
  kube::Informer jobs_;
  kube::Informer pods_;
  kube::Informer services_;
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
