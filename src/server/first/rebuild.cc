// POST /v1alpha1/replicas/failed: workers that a coordinator cannot use any more are made again.
#include "dijob/pod_template.h"
#include "server/first/batch.h"
#include "server/first/ddp_group.h"
#include "server/first/gpu_split.h"
#include "server/first/operation.h"
#include "server/first/pod_names.h"
#include "server/first/roll.h"
#include "server/first/team.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace divisi::server::first {
namespace {

constexpr int kNewNames = 5;  // how often a name may turn out to be taken

void set_variable_of(json::Value& pod, std::string_view name, const std::string& value) {
  json::Value* containers = pod["spec"].find("containers");
  if (containers == nullptr || containers->as_array() == nullptr) return;
  for (json::Value& container : *containers->as_array()) {
    json::Value* env = container.find("env");
    if (env == nullptr || env->as_array() == nullptr) continue;
    for (json::Value& each : *env->as_array()) {
      if (each.string_at({"name"}) == name) each["value"] = value;
    }
  }
}

// What a demand had set: requests and limits that are equal. Others are the template's own.
dijob::Amounts demanded_resources(const Worker& worker) {
  dijob::Amounts amounts;
  const json::Value* main =
      dijob::first::main_container(*worker.object.find("spec"), worker.pod.role);
  if (main == nullptr) return amounts;
  const auto requests = dijob::read_amounts(main->find_path({"resources", "requests"}));
  const auto limits = dijob::read_amounts(main->find_path({"resources", "limits"}));
  for (const char* name : {"cpu", "memory"}) {
    const auto request = requests.find(name);
    const auto limit = limits.find(name);
    if (request == requests.end() || limit == limits.end()) continue;
    if (request->second == limit->second) amounts.emplace(name, limit->second);
  }
  return amounts;
}

class Rebuild : public std::enable_shared_from_this<Rebuild> {
 public:
  Rebuild(const Parts& parts, Job job, std::set<std::string> pods, Finished done)
      : parts_(parts), job_(std::move(job)), named_(std::move(pods)), done_(std::move(done)) {}

  void start() {
    parts_.source.read_workers(job_,
                               [self = shared_from_this()](Result<std::vector<Worker>> workers) {
                                 if (!workers) return self->finish(std::move(workers).error());
                                 self->workers_ = *std::move(workers);
                                 self->read_roll_of_job();
                               });
  }

 private:
  using Made = std::function<void(Result<json::Value>)>;

  void read_roll_of_job();
  void add_gone();
  void add_unseen(const std::string& name);
  bool lacks(Role role, const Size& size) const;
  int gpus_of_group(const std::string& aggregator_uid, const WorkerList& present) const;
  dijob::Amounts resources_of(Role role, const Worker* old);
  void read_config();
  void read_again();
  void complete_groups();
  void complete_group(const Worker& aggregator, const std::function<void(Status)>& ended);
  void choose();
  void choose_ddp();
  json::Value make_new(const Worker& old, const std::string& name);
  void rebuild_all();
  void rebuild_one(std::size_t index, std::function<void(Status)> ended);
  void rebuild_plain(const Worker& old, std::function<void(Status)> ended);
  void rebuild_logical(const Worker& old, std::function<void(Status)> ended);
  void make_group(const Worker& old, const json::Value& aggregator,
                  const std::function<void(Status)>& then);
  void replace(const Worker& old, int salt, Made done);
  std::string new_name(const Worker& old, int salt, std::string& made_for) const;
  WorkerList group_of(const Worker& aggregator) const;
  void note(const json::Value& pod);
  void finish(Status status) { done_({std::move(status), std::move(made_)}); }

  const Parts parts_;
  const Job job_;
  const std::set<std::string> named_;
  const Finished done_;
  std::vector<Worker> workers_;
  std::set<std::string> gone_;           // uids of those in workers_ that are not there any more
  std::set<std::string> broken_groups_;  // uids of aggregators with deleted DDP learners
  Roll roll_;                            // of the coordinator
  bool has_roll_ = false;
  std::string coordinator_uid_;
  bool needs_config_ = false;
  json::Value aggregator_template_;
  WorkerList chosen_;
  std::vector<std::int64_t> gpus_of_nodes_;
  std::map<std::string, std::string> masters_;  // new name of a group's first pod, by aggregator
  Replicas made_;
};

// Also those that terminate, unless a demand has dismissed them.
WorkerList Rebuild::group_of(const Worker& aggregator) const {
  WorkerList group;
  for (const Worker& each : workers_) {
    const bool member =
        each.pod.role == Role::kDdpLearner && each.pod.aggregator_uid == aggregator.pod.uid;
    if (member) group.push_back(&each);
  }
  return group;
}

void Rebuild::read_roll_of_job() {
  const std::string name = dijob::first::fixed_pod_name(job_.name, Role::kCoordinator);
  parts_.source.read(kube::resources::pods(), job_.space, name,
                     [self = shared_from_this()](const Result<json::Value>& pod) {
                       if (!pod && pod.error().code() != Code::kNotFound) {
                         return self->finish(pod.error());
                       }
                       if (pod) {
                         const auto roll = read_roll(*pod);
                         self->has_roll_ = roll.has_value();
                         self->roll_ = roll.value_or(Roll());
                         self->coordinator_uid_ = pod->string_at({"metadata", "uid"});
                       }
                       self->add_gone();
                       self->choose();
                     });
}

// Workers that somebody deleted are made again when they are reported, as those that failed.
void Rebuild::add_gone() {
  for (const std::string& name : named_) {
    if (std::ranges::any_of(workers_, [&](const Worker& each) { return each.pod.name == name; })) {
      continue;
    }
    const Worker* const found = parts_.source.find_gone(job_.uid, name);
    if (found == nullptr) {
      add_unseen(name);
      continue;
    }
    if (is_operators(found->pod)) continue;
    const Role role = found->pod.role;
    if (role == Role::kDdpLearner) {
      broken_groups_.insert(found->pod.aggregator_uid);
      continue;
    }
    const bool is_aggregator = role == Role::kAggregator;
    if (!is_aggregator && job_.find_template(role) == nullptr) continue;
    // Another server may have replaced it already.
    if (has_roll_ && !lacks(role, *roll_.find(role))) continue;
    needs_config_ = needs_config_ || is_aggregator;
    workers_.push_back(*found);
    gone_.insert(found->pod.uid);
  }
}

// Fewer than the coordinator was given, counting those that this report brings back.
bool Rebuild::lacks(Role role, const Size& size) const {
  const auto there = std::ranges::count_if(workers_, [&](const Worker& each) {
    return each.pod.role == role && !is_dismissed(each) && !is_operators(each.pod);
  });
  return there < size.replicas;
}

// The end of this one was not seen: the server was away. Its name says what it was, and the roll of
// the coordinator whether it is missing. One that was given back, or was replaced, is not.
void Rebuild::add_unseen(const std::string& name) {
  const auto role = dijob::first::role_of_name(job_.name, name);
  if (!role) return;
  if (*role == Role::kDdpLearner) {
    for (const Worker& each : workers_) {
      if (each.pod.role == Role::kAggregator && !is_operators(each.pod)) {
        broken_groups_.insert(each.pod.uid);
      }
    }
    return;
  }
  const Size* const size = roll_.find(*role);
  const bool is_aggregator = *role == Role::kAggregator;
  if (size == nullptr || !lacks(*role, *size)) return;
  if (!is_aggregator && job_.find_template(*role) == nullptr) return;
  Worker lost;
  lost.pod.space = job_.space;
  lost.pod.name = name;
  lost.pod.uid = fmt::format("unseen/{}", name);
  lost.pod.role = *role;
  lost.pod.gpus = is_aggregator ? 0 : size->gpus;
  lost.pod.owner = job_.name;
  lost.pod.owner_uid = job_.uid;
  lost.pod.coordinator_uid = coordinator_uid_;
  json::Value& metadata = lost.object["metadata"];
  metadata["name"] = name;
  metadata["namespace"] = job_.space;
  metadata["uid"] = lost.pod.uid;
  metadata["labels"][std::string(dijob::first::labels::kJob)] = dijob::first::job_label(job_.name);
  needs_config_ = needs_config_ || is_aggregator;
  gone_.insert(lost.pod.uid);
  workers_.push_back(std::move(lost));
}

// What a demand had set for such a worker: as it is, or was; by the roll where nobody saw it.
dijob::Amounts Rebuild::resources_of(Role role, const Worker* old) {
  if (old != nullptr && old->object.find("spec") != nullptr) return demanded_resources(*old);
  const Size* const size = roll_.find(role);
  if (size == nullptr) return {};
  return {{"cpu", size->cpus}, {"memory", size->memory}};
}

// By those of its pods that there are; otherwise by the roll, or by those that were seen to go.
int Rebuild::gpus_of_group(const std::string& aggregator_uid, const WorkerList& present) const {
  if (const int world = world_size(present); world > 0) return world;
  return roll_.groups.gpus > 1 ? roll_.groups.gpus : parts_.source.gone_gpus(aggregator_uid);
}

// Of a pod that is gone the cache has only a part: the rest comes from the template.
json::Value Rebuild::make_new(const Worker& old, const std::string& name) {
  if (!gone_.contains(old.pod.uid)) return dijob::first::make_replacement(old.object, name);
  const bool is_aggregator = old.pod.role == Role::kAggregator;
  dijob::first::PodWish wish;
  wish.role = old.pod.role;
  wish.name = name;
  wish.pod_template = is_aggregator ? &aggregator_template_ : job_.find_template(old.pod.role);
  if (!is_aggregator) wish.resources = resources_of(old.pod.role, &old);
  if (!is_aggregator && old.pod.gpus > 0) {
    wish.resources.emplace(dijob::first::kGpu, json::Quantity(old.pod.gpus));
  }
  wish.coordinator_uid = old.pod.coordinator_uid;
  return dijob::first::make_pod(job_, wish, parts_.options.server_url);
}

void Rebuild::choose() {
  bool groups = false;
  for (const Worker& each : workers_) {
    if (!named_.contains(each.pod.name) || is_dismissed(each) || is_operators(each.pod)) continue;
    if (each.pod.role == Role::kDdpLearner) continue;
    groups = groups || each.pod.role == Role::kAggregator;
    chosen_.push_back(&each);
  }
  choose_ddp();
  if (chosen_.empty() && broken_groups_.empty()) return finish({});
  if (!groups && broken_groups_.empty()) return rebuild_all();
  if (job_.find_template(Role::kDdpLearner) == nullptr) {
    return finish(make_status(Code::kInvalid,
                              "DIJob {}/{} has no spec.learner.template: learners cannot be "
                              "created",
                              job_.space, job_.name));
  }
  parts_.source.read_gpus([self = shared_from_this()](Result<std::vector<std::int64_t>> of_nodes) {
    if (!of_nodes) return self->finish(std::move(of_nodes).error());
    self->gpus_of_nodes_ = *std::move(of_nodes);
    self->needs_config_ ? self->read_config() : self->rebuild_all();
  });
}

void Rebuild::read_config() {
  read_aggregator_config(parts_, [self = shared_from_this()](Result<json::Value> found) {
    if (!found) return self->finish(std::move(found).error());
    self->aggregator_template_ = *std::move(found);
    self->rebuild_all();
  });
}

// What was rebuilt just now belongs to the groups.
void Rebuild::read_again() {
  parts_.source.read_workers(job_,
                             [self = shared_from_this()](Result<std::vector<Worker>> workers) {
                               if (!workers) return self->finish(std::move(workers).error());
                               self->chosen_.clear();
                               self->workers_ = *std::move(workers);
                               self->complete_groups();
                             });
}

// A group with an aggregator gets the pods that it lacks. Their names follow from its uid, so a
// first pod that is made again is found by the others.
void Rebuild::complete_groups() {
  std::vector<const Worker*> broken;
  for (const Worker& each : workers_) {
    const bool alive = each.pod.role == Role::kAggregator && each.pod.live();
    if (alive && broken_groups_.contains(each.pod.uid)) broken.push_back(&each);
  }
  run_batch(
      broken.size(), kWidth,
      [self = shared_from_this(), broken](std::size_t index,
                                          const std::function<void(Status)>& ended) {
        self->complete_group(*broken[index], ended);
      },
      [self = shared_from_this()](Status status) { self->finish(std::move(status)); });
}

void Rebuild::complete_group(const Worker& aggregator, const std::function<void(Status)>& ended) {
  WorkerList present = group_of(aggregator);
  std::erase_if(present, [](const Worker* each) { return !each->pod.live(); });
  const std::string& uid = aggregator.pod.uid;
  const int world = gpus_of_group(uid, present);
  int there = 0;
  for (const Worker* each : present) there += each->pod.gpus;
  if (there == world) return ended({});
  GroupWish wish;
  wish.aggregator = aggregator.object;
  wish.split = split_gpus(world, gpus_of_nodes_);
  wish.resources = resources_of(Role::kAggregator, present.empty() ? nullptr : present.front());
  wish.coordinator_uid = aggregator.pod.coordinator_uid;
  auto pods = missing_pods(job_, wish, present, parts_.options.server_url);
  // The nodes have changed since the group was made: its ranks would overlap.
  const bool fits = present.size() + pods.size() == wish.split.size();
  if (!fits) {
    return ended(make_status(Code::kInternal,
                             "the group of aggregator {} cannot be completed: the GPUs of the "
                             "nodes have changed; report the aggregator instead",
                             aggregator.pod.name));
  }
  for (const GroupPod& each : pods) note(each.pod);
  create_group(parts_.writer, std::move(pods),
               [self = shared_from_this(), uid, ended](Status status) {
                 if (status.ok()) self->parts_.source.forget_group(uid);
                 ended(std::move(status));
               });
}

// DDP learners whose aggregator is not made again itself. The others of a group look for its first
// pod by name: when that gets another one, all do.
void Rebuild::choose_ddp() {
  std::set<std::string> with_aggregator;
  for (const Worker* each : chosen_) with_aggregator.insert(each->pod.uid);
  std::set<std::string> whole;
  const auto named = [&](const Worker& each) {
    return each.pod.role == Role::kDdpLearner && named_.contains(each.pod.name) &&
           !is_dismissed(each) && !with_aggregator.contains(each.pod.aggregator_uid);
  };
  for (const Worker& each : workers_) {
    const bool master = each.object.string_at({"metadata", "labels", dijob::first::labels::kDdp}) ==
                        dijob::first::labels::kDdpMaster;
    if (!master || !named(each)) continue;
    whole.insert(each.pod.aggregator_uid);
    std::string unused;
    masters_[each.pod.aggregator_uid] = new_name(each, 0, unused);
  }
  for (const Worker& each : workers_) {
    const bool of_whole = each.pod.role == Role::kDdpLearner && !is_dismissed(each) &&
                          whole.contains(each.pod.aggregator_uid);
    if (of_whole || named(each)) chosen_.push_back(&each);
  }
}

void Rebuild::rebuild_all() {
  run_batch(
      chosen_.size(), kWidth,
      [self = shared_from_this()](std::size_t index, std::function<void(Status)> ended) {
        self->rebuild_one(index, std::move(ended));
      },
      [self = shared_from_this()](Status status) {
        if (!status.ok() || self->broken_groups_.empty()) return self->finish(std::move(status));
        self->read_again();
      });
}

void Rebuild::rebuild_one(std::size_t index, std::function<void(Status)> ended) {
  const Worker& old = *chosen_[index];
  if (old.pod.role == Role::kAggregator) return rebuild_logical(old, std::move(ended));
  rebuild_plain(old, std::move(ended));
}

std::string Rebuild::new_name(const Worker& old, int salt, std::string& made_for) const {
  made_for = fmt::format("replaces/{}/{}", old.pod.uid, salt);
  return dijob::first::renamed(old.pod.name, name_seed(made_for));
}

// The new pod is there before the old one is deleted: whatever fails in between, the report can be
// repeated, and leads to the same new pod.
void Rebuild::replace(const Worker& old, int salt, Made done) {
  std::string made_for;
  const std::string name = new_name(old, salt, made_for);
  json::Value pod = make_new(old, name);
  pod["spec"].erase("ephemeralContainers");  // not allowed in a pod that begins
  if (old.pod.role == Role::kDdpLearner) {
    const auto master = masters_.find(old.pod.aggregator_uid);
    const bool is_worker =
        old.object.string_at({"metadata", "labels", dijob::first::labels::kDdp}) ==
        dijob::first::labels::kDdpWorker;
    if (master != masters_.end() && is_worker) set_variable_of(pod, "MASTER_ADDR", master->second);
  }
  parts_.writer.create(
      std::move(pod), std::move(made_for),
      [self = shared_from_this(), &old, salt, done = std::move(done)](Result<json::Value> made) {
        const bool taken = !made && made.error().code() == Code::kAlreadyExists;
        if (taken && salt + 1 < kNewNames) {
          return self->replace(old, salt + 1, done);
        }
        done(std::move(made));
      });
}

void Rebuild::rebuild_plain(const Worker& old, std::function<void(Status)> ended) {
  replace(
      old, 0,
      [self = shared_from_this(), &old, ended = std::move(ended)](const Result<json::Value>& made) {
        if (!made) return ended(made.error());
        self->note(*made);
        self->parts_.source.replaced(old.pod);
        self->parts_.writer.remove(old.object, true, [ended](const Result<bool>& removed) {
          ended(removed ? Status() : removed.error());
        });
      });
}

void Rebuild::rebuild_logical(const Worker& old, std::function<void(Status)> ended) {
  replace(
      old, 0,
      [self = shared_from_this(), &old, ended = std::move(ended)](const Result<json::Value>& made) {
        if (!made) return ended(made.error());
        self->make_group(old, *made, [self, &old, made = *made, ended](Status status) {
          if (!status.ok()) return ended(std::move(status));
          self->note(made);
          self->parts_.source.replaced(old.pod);
          remove_worker(self->parts_.writer, old, self->group_of(old), true,
                        [ended](const Result<bool>& removed) {
                          ended(removed ? Status() : removed.error());
                        });
        });
      });
}

void Rebuild::make_group(const Worker& old, const json::Value& aggregator,
                         const std::function<void(Status)>& then) {
  const WorkerList before = group_of(old);
  const int gpus = gpus_of_group(old.pod.uid, before);
  if (gpus == 0) return then({});
  GroupWish wish;
  wish.aggregator = aggregator;
  wish.split = split_gpus(gpus, gpus_of_nodes_);
  wish.resources = resources_of(Role::kAggregator, before.empty() ? nullptr : before.front());
  wish.coordinator_uid = old.pod.coordinator_uid;
  create_group(parts_.writer, missing_pods(job_, wish, {}, parts_.options.server_url),
               [self = shared_from_this(), uid = old.pod.uid, then](Status status) {
                 if (status.ok()) self->parts_.source.forget_group(uid);
                 then(std::move(status));
               });
}

void Rebuild::note(const json::Value& object) {
  const auto pod = dijob::first::read_pod(object);
  if (!pod) return;
  std::optional<Urls>& list = pod->role == Role::kCollector ? made_.collectors : made_.learners;
  if (!list) list = Urls();
  const bool ranks = pod->role == Role::kDdpLearner;
  for (std::string& url : ranks ? pod->rank_urls() : Urls{pod->url()}) {
    list->push_back(std::move(url));
  }
}

}  // namespace

void rebuild_replicas(const Parts& parts, const Job& job, const std::set<std::string>& pods,
                      Finished done) {
  std::make_shared<Rebuild>(parts, job, pods, std::move(done))->start();
}

}  // namespace divisi::server::first
