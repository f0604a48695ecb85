// POST /v1alpha1/replicas: from the demand of a coordinator to the pods that meet it.
#include "base/log.h"
#include "io/crypto.h"
#include "server/first/batch.h"
#include "server/first/ddp_group.h"
#include "server/first/gpu_split.h"
#include "server/first/operation.h"
#include "server/first/pod_names.h"
#include "server/first/roll.h"
#include "server/first/team.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace divisi::server::first {
namespace {

namespace annotations = dijob::first::annotations;

constexpr int kPlans = 10;               // how often others may come in between
constexpr int kNames = 5;                // how often a name may turn out to be taken
constexpr std::size_t kMaxPodName = 63;  // a service and a label have it too

dijob::Amounts amounts_of(const Size& size, bool with_gpus) {
  dijob::Amounts amounts{{"cpu", size.cpus}, {"memory", size.memory}};
  if (with_gpus) amounts.emplace(dijob::first::kGpu, json::Quantity(size.gpus));
  return amounts;
}

class Creation : public std::enable_shared_from_this<Creation> {
 public:
  Creation(const Parts& parts, Owner owner, Demand demand, Finished done)
      : parts_(parts),
        owner_(std::move(owner)),
        demand_(std::move(demand)),
        done_(std::move(done)) {
    if (const auto pod = dijob::first::read_pod(owner_.pod);
        pod && pod->role == Role::kCoordinator) {
      caller_.uid = pod->uid;
      caller_.created = pod->created;
      caller_.served = !owner_.pod.string_at({"metadata", "annotations", kServed}).empty() ||
                       parts_.served.contains(pod->uid);
    }
  }

  void start() {
    if (Status bad = check_state(); !bad.ok()) return finish(std::move(bad));
    read();
  }

 private:
  using Self = std::shared_ptr<Creation>;
  bool wants_groups() const { return demand_.learners && demand_.learners->gpus > 1; }

  void read();
  void read_config();
  void read_nodes();
  void begin();
  void adopt();
  void drop_surplus();
  void create_collectors();
  void complete_groups();
  void create_learners();
  void mark_served();
  void finish(Status status);

  Status check_state() const;
  Status check_plan() const;
  Status check_total(std::size_t pods_a_learner) const;
  std::string pick_name(Role role, std::string& made_for);
  void create_one(Role role, int names_left, std::function<void(Result<json::Value>)> done);
  void create_logical(std::function<void(Result<json::Value>)> done);
  void make_group_of(json::Value aggregator, const WorkerList& present,
                     std::function<void(Result<json::Value>)> done);
  void create_many(Role role, int count, std::function<void(Status)> then);
  // Runs `then` of this object, or ends with the failure.
  std::function<void(Status)> next(void (Creation::*then)()) {
    return [self = shared_from_this(), then](Status status) {
      if (!status.ok()) return self->finish(std::move(status));
      ((*self).*then)();
    };
  }

  // The same, but plans again when somebody has changed a worker meanwhile.
  std::function<void(Status)> after_writes(std::shared_ptr<bool> conflict,
                                           void (Creation::*then)()) {
    return [self = shared_from_this(), conflict = std::move(conflict), then](Status status) {
      if (!status.ok()) return self->finish(std::move(status));
      if (!*conflict) return ((*self).*then)();
      if (self->plans_ < kPlans) return self->read();
      self->finish({Code::kConflict, "the workers of the job change all the time: try again"});
    };
  }

  const Parts parts_;
  const Owner owner_;
  const Demand demand_;
  const Finished done_;
  Caller caller_;
  int plans_ = 0;

  std::vector<Worker> workers_;
  Team team_;
  Plan plan_;
  json::Value aggregator_template_;
  std::vector<int> split_;
  std::set<std::string> names_;  // that pods have, or will have
  std::map<Role, std::uint64_t> next_index_;
  Replicas made_;
};

Status Creation::check_state() const {
  const std::string_view phase = owner_.object.string_at({"status", "phase"});
  const bool ended = phase == "Succeeded" || phase == "Failed";
  if (!ended && !owner_.job.deleting) return {};
  return make_status(Code::kInvalid, "DIJob {}/{} {}: it gets no more replicas", owner_.job.space,
                     owner_.job.name,
                     ended ? fmt::format("has ended as {}", phase) : "is being deleted");
}

void Creation::read() {
  ++plans_;
  parts_.source.read_workers(owner_.job,
                             [self = shared_from_this()](Result<std::vector<Worker>> workers) {
                               if (!workers) return self->finish(std::move(workers).error());
                               self->workers_ = *std::move(workers);
                               self->begin();
                             });
}

void Creation::begin() {
  team_ = sort_out(workers_);
  plan_ = plan_demand(team_, demand_, caller_);
  names_.clear();
  for (const Worker& each : workers_) names_.insert(each.pod.name);
  next_index_.clear();
  if (Status bad = check_plan(); !bad.ok()) return finish(std::move(bad));
  const bool groups = wants_groups() && demand_.learners->replicas > 0;
  if (!groups || !split_.empty()) return adopt();
  if (plan_.learners > 0) return read_config();
  read_nodes();
}

Status Creation::check_plan() const {
  const Job& job = owner_.job;
  const auto need = [&](Role role, int count) -> Status {
    if (count == 0) return {};
    if (job.find_template(role) == nullptr) {
      return make_status(Code::kInvalid,
                         "DIJob {}/{} has no spec.{}.template: {}s cannot be created", job.space,
                         job.name, role_name(role), role_name(role));
    }
    const std::size_t size =
        dijob::first::random_pod_name(
            job.name, role == Role::kLearner && wants_groups() ? Role::kDdpLearner : role, 0)
            .size();
    if (size <= kMaxPodName) return {};
    return make_status(Code::kInvalid,
                       "the name of DIJob {}/{} is too long: its pods would have names of {} "
                       "characters, at most {} are allowed",
                       job.space, job.name, size, kMaxPodName);
  };
  if (Status bad = need(Role::kCollector, plan_.collectors); !bad.ok()) return bad;
  // Groups of aggregators that are there may have to be finished.
  const int groups = wants_groups() ? demand_.learners->replicas : 0;
  if (Status bad = need(Role::kLearner, std::max(groups, plan_.learners)); !bad.ok()) return bad;
  if (groups > 0) {
    if (Status bad = check_ports(job, demand_.learners->gpus); !bad.ok()) return bad;
  }
  return check_total(1);
}

Status Creation::check_total(std::size_t pods_a_learner) const {
  const std::size_t more = static_cast<std::size_t>(plan_.collectors) +
                           static_cast<std::size_t>(plan_.learners) * pods_a_learner;
  const std::size_t all = workers_.size() + more;
  if (all <= static_cast<std::size_t>(kMaxReplicas)) return {};
  return make_status(Code::kInvalid,
                     "{} more replicas would make {} pods of DIJob {}/{}: at most {} are allowed",
                     more, all, owner_.job.space, owner_.job.name, kMaxReplicas);
}

void Creation::read_config() {
  read_aggregator_config(parts_, [self = shared_from_this()](Result<json::Value> found) {
    if (!found) return self->finish(std::move(found).error());
    self->aggregator_template_ = *std::move(found);
    self->read_nodes();
  });
}

void Creation::read_nodes() {
  parts_.source.read_gpus(
      [self = shared_from_this()](const Result<std::vector<std::int64_t>>& of_nodes) {
        if (!of_nodes) return self->finish(of_nodes.error());
        self->split_ = split_gpus(self->demand_.learners->gpus, *of_nodes);
        Status bad = self->check_total(1 + self->split_.size());
        if (!bad.ok()) return self->finish(std::move(bad));
        self->adopt();
      });
}

void Creation::adopt() {
  made_.space = demand_.space;
  made_.coordinator = demand_.coordinator;
  const auto conflict = std::make_shared<bool>(false);
  run_batch(
      plan_.adopted.size(), kWidth,
      [self = shared_from_this(), conflict](std::size_t index, std::function<void(Status)> ended) {
        const Worker& one = *self->plan_.adopted[index];
        self->parts_.writer.annotate(
            one.object, annotations::kCoordinatorUid, self->caller_.uid, true,
            [self, conflict, uid = one.pod.uid, ended = std::move(ended)](Status status) {
              if (status.ok()) self->caller_.claimed.insert(uid);
              if (status.code() == Code::kConflict) *conflict = true;
              ended(status.code() == Code::kConflict ? Status() : std::move(status));
            });
      },
      after_writes(conflict, &Creation::drop_surplus));
}

void Creation::drop_surplus() {
  made_.collectors = demand_.collectors ? std::optional(Urls()) : std::nullopt;
  made_.learners.reset();
  for (const Worker* each : plan_.kept_collectors) made_.collectors->push_back(each->pod.url());
  const auto conflict = std::make_shared<bool>(false);
  run_batch(
      plan_.surplus.size(), kWidth,
      [self = shared_from_this(), conflict](std::size_t index, std::function<void(Status)> ended) {
        const Worker& one = *self->plan_.surplus[index];
        dismiss(self->parts_.writer, one, self->team_.group_of(one),
                [conflict, ended = std::move(ended)](const Result<bool>& removed) {
                  const bool changed = !removed && removed.error().code() == Code::kConflict;
                  *conflict = *conflict || changed;
                  ended(removed || changed ? Status() : removed.error());
                });
      },
      after_writes(conflict, &Creation::create_collectors));
}

void Creation::create_collectors() {
  if (!made_.collectors) made_.collectors = Urls();
  create_many(Role::kCollector, plan_.collectors, next(&Creation::complete_groups));
}

// Aggregators that count, but whose group was never finished.
void Creation::complete_groups() {
  made_.learners = Urls();
  for (const Worker* each : plan_.kept_learners) made_.learners->push_back(each->pod.url());
  if (!wants_groups()) return create_learners();
  run_batch(
      plan_.kept_learners.size(), kWidth,
      [self = shared_from_this()](std::size_t index, std::function<void(Status)> ended) {
        const Worker& one = *self->plan_.kept_learners[index];
        const WorkerList& present = self->team_.group_of(one);
        int gpus = 0;
        for (const Worker* each : present) gpus += each->pod.gpus;
        if (gpus == self->demand_.learners->gpus) return ended({});
        self->make_group_of(one.object, present,
                            [ended = std::move(ended)](const Result<json::Value>& made) {
                              ended(made ? Status() : made.error());
                            });
      },
      next(&Creation::create_learners));
}

void Creation::create_learners() {
  create_many(wants_groups() ? Role::kAggregator : Role::kLearner, plan_.learners,
              next(&Creation::mark_served));
}

// The first demand of a coordinator counts what is there of its own earlier tries, so the names of
// its workers follow from its uid, whichever server makes them.
std::string Creation::pick_name(Role role, std::string& made_for) {
  const bool first = !caller_.uid.empty() && !caller_.served;
  for (;;) {
    std::uint64_t seed = 0;
    if (first) {
      made_for = fmt::format("{}/{}/{}", caller_.uid, role_name(role), next_index_[role]++);
      seed = name_seed(made_for);
    } else {
      seed = parts_.options.random ? parts_.options.random() : io::random_u64();
      made_for = fmt::format("{:016x}", seed);
    }
    std::string name = dijob::first::random_pod_name(owner_.job.name, role, seed);
    if (names_.insert(name).second) return name;
  }
}

void Creation::create_one(Role role, int names_left,
                          std::function<void(Result<json::Value>)> done) {
  const bool is_collector = role == Role::kCollector;
  dijob::first::PodWish wish;
  std::string made_for;
  wish.role = role;
  wish.name = pick_name(role, made_for);
  wish.coordinator_uid = caller_.uid;
  wish.pod_template =
      role == Role::kAggregator ? &aggregator_template_ : owner_.job.find_template(role);
  if (role != Role::kAggregator) {
    wish.resources = amounts_of(is_collector ? *demand_.collectors : *demand_.learners, true);
  }
  parts_.writer.create(dijob::first::make_pod(owner_.job, wish, parts_.options.server_url),
                       std::move(made_for),
                       [self = shared_from_this(), role, names_left,
                        done = std::move(done)](Result<json::Value> made) {
                         const bool taken = !made && made.error().code() == Code::kAlreadyExists;
                         if (taken && names_left > 1)
                           return self->create_one(role, names_left - 1, done);
                         done(std::move(made));
                       });
}

void Creation::make_group_of(json::Value aggregator, const WorkerList& present,
                             std::function<void(Result<json::Value>)> done) {
  GroupWish wish;
  wish.aggregator = std::move(aggregator);
  wish.split = split_;
  wish.resources = amounts_of(*demand_.learners, false);
  wish.coordinator_uid = caller_.uid;
  auto pods = missing_pods(owner_.job, wish, present, parts_.options.server_url);
  create_group(parts_.writer, std::move(pods),
               [made = std::move(wish.aggregator), done = std::move(done)](Status status) {
                 if (!status.ok()) return done(failure(std::move(status)));
                 done(made);
               });
}

// A logical learner is there as a whole, or not at all.
void Creation::create_logical(std::function<void(Result<json::Value>)> done) {
  create_one(Role::kAggregator, kNames,
             [self = shared_from_this(), done = std::move(done)](Result<json::Value> aggregator) {
               if (!aggregator) return done(std::move(aggregator));
               self->make_group_of(
                   *aggregator, {},
                   [self, aggregator = *aggregator, done](Result<json::Value> made) {
                     if (made) return done(std::move(made));
                     // Its pods that were created belong to it and are found by their owner.
                     self->parts_.source.read_workers(
                         self->owner_.job, [self, aggregator, done, why = made.error()](
                                               const Result<std::vector<Worker>>& workers) {
                           auto pod = dijob::first::read_pod(aggregator);
                           if (!workers || !pod) return done(failure(why));
                           const Worker head{*std::move(pod), aggregator};
                           const Team team = sort_out(*workers);
                           remove_worker(self->parts_.writer, head, team.group_of(head), true,
                                         [done, why](const Result<bool>&) { done(failure(why)); });
                         });
                   });
             });
}

void Creation::create_many(Role role, int count, std::function<void(Status)> then) {
  const auto urls = std::make_shared<Urls>(static_cast<std::size_t>(count));
  run_batch(
      urls->size(), kWidth,
      [self = shared_from_this(), role, urls](std::size_t index,
                                              std::function<void(Status)> ended) {
        auto made = [urls, index, ended = std::move(ended)](const Result<json::Value>& pod) {
          if (!pod) return ended(pod.error());
          if (const auto read = dijob::first::read_pod(*pod)) (*urls)[index] = read->url();
          ended({});
        };
        if (role == Role::kAggregator) return self->create_logical(std::move(made));
        self->create_one(role, kNames, std::move(made));
      },
      [self = shared_from_this(), role, urls, then = std::move(then)](Status status) {
        Urls& all = role == Role::kCollector ? *self->made_.collectors : *self->made_.learners;
        std::ranges::copy_if(*urls, std::back_inserter(all),
                             [](const std::string& url) { return !url.empty(); });
        then(std::move(status));
      });
}

void Creation::mark_served() {
  if (caller_.uid.empty() || caller_.served) return finish({});
  Roll roll;
  roll.add(demand_, demand_.collectors ? demand_.collectors->replicas : 0,
           demand_.learners ? demand_.learners->replicas : 0);
  change_roll(
      parts_, owner_.pod, [roll](const std::optional<Roll>&) { return std::optional(roll); },
      [self = shared_from_this()](const Status& status) {
        // This server at least knows it.
        if (!status.ok()) {
          log::warning("cannot mark coordinator={}/{} as served: {}", self->demand_.space,
                       self->demand_.coordinator, status.message());
          self->parts_.served.insert(self->caller_.uid);
        }
        self->finish({});
      });
}

void Creation::finish(Status status) {
  const auto count = [](const std::optional<Urls>& urls) {
    return urls ? static_cast<int>(urls->size()) : 0;
  };
  const int collectors = count(made_.collectors);
  const int learners = count(made_.learners);
  if (!caller_.served || collectors + learners == 0) {
    return done_({std::move(status), std::move(made_)});
  }
  // More for a coordinator that has some, also where not all could be made.
  change_roll(
      parts_, owner_.pod,
      [self = shared_from_this(), collectors, learners](std::optional<Roll> roll) {
        if (roll) roll->add(self->demand_, collectors, learners);
        return roll;
      },
      [self = shared_from_this(), status = std::move(status)](const Status&) {
        self->done_({status, std::move(self->made_)});
      });
}

}  // namespace

void read_aggregator_config(const Parts& parts, std::function<void(Result<json::Value>)> done) {
  const Options& options = parts.options;
  parts.source.read(
      dijob::first::aggregator_configs(), options.config_space, options.config_name,
      [&options, done = std::move(done)](const Result<json::Value>& config) {
        if (!config && config.error().code() == Code::kNotFound) {
          return done(failure(Code::kNotFound, "AGConfig: {}/{} not exists in cache",
                              options.config_space, options.config_name));
        }
        if (!config) return done(failure(config.error()));
        auto found = dijob::first::read_aggregator_template(*config);
        if (!found) {
          return done(failure(Code::kInvalid, "AGConfig: {}/{}: {}", options.config_space,
                              options.config_name, found.error().message()));
        }
        done(std::move(found));
      });
}

void create_replicas(const Parts& parts, const Owner& owner, const Demand& demand, Finished done) {
  std::make_shared<Creation>(parts, owner, demand, std::move(done))->start();
}

}  // namespace divisi::server::first
