// DELETE /v1alpha1/replicas: fewer workers, collectors first.
#include "server/first/batch.h"
#include "server/first/operation.h"
#include "server/first/roll.h"
#include "server/first/team.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

namespace divisi::server::first {
namespace {

// On a worker: it is about to be deleted because nobody wants it any more.
constexpr int kRounds = 10;  // how often others may come in between

class Deletion : public std::enable_shared_from_this<Deletion> {
 public:
  Deletion(const Parts& parts, const Owner& owner, const Demand& demand, Finished done)
      : parts_(parts), owner_(owner), done_(std::move(done)) {
    wanted_[0] = demand.collectors ? demand.collectors->replicas : 0;
    wanted_[1] = demand.learners ? demand.learners->replicas : 0;
    deleted_.space = demand.space;
    deleted_.coordinator = demand.coordinator;
    deleted_.collectors = Urls();
    deleted_.learners = Urls();
  }

  // One round: looks which workers there are, and dismisses as many as are still to go.
  void round() {
    parts_.source.read_workers(owner_.job,
                               [self = shared_from_this()](Result<std::vector<Worker>> workers) {
                                 if (!workers) return self->finish(std::move(workers).error());
                                 self->workers_ = *std::move(workers);
                                 self->team_ = sort_out(self->workers_);
                                 self->choose();
                               });
  }

 private:
  void choose() {
    chosen_ = pick(team_.collectors, wanted_[0]);
    if (chosen_.empty()) {  // collectors come first
      const bool plain = !aggregators_ && !team_.learners.empty();
      aggregators_ = aggregators_ || (!plain && !plain_deleted_);
      chosen_ = pick(aggregators_ ? team_.aggregators : team_.learners, wanted_[1]);
    }
    if (chosen_.empty()) return finish({});
    if (++rounds_ > kRounds) {
      return finish({Code::kConflict, "the workers of the job change all the time: try again"});
    }
    run_batch(
        chosen_.size(), kWidth,
        [self = shared_from_this()](std::size_t index, std::function<void(Status)> ended) {
          self->dismiss_one(index, std::move(ended));
        },
        [self = shared_from_this()](Status status) {
          if (!status.ok()) return self->finish(std::move(status));
          self->round();
        });
  }

  // Those that are worth least first: ended, not ready, youngest. Those that another server has
  // dismissed come last: it is about to delete them.
  WorkerList pick(const WorkerList& all, int count) const {
    WorkerList found;
    for (const Worker* each : all) {
      if (!gone_.contains(each->pod.uid) && !is_operators(each->pod)) found.push_back(each);
    }
    std::ranges::sort(found, [](const Worker* a, const Worker* b) {
      const auto worth = [](const Worker* each) {
        return std::tuple(is_dismissed(*each), !each->pod.over(), each->pod.ready);
      };
      if (worth(a) != worth(b)) return worth(a) < worth(b);
      return std::tie(b->pod.created, b->pod.name) < std::tie(a->pod.created, a->pod.name);
    });
    found.resize(std::min(found.size(), static_cast<std::size_t>(count)));
    return found;
  }

  void dismiss_one(std::size_t index, std::function<void(Status)> ended) {
    const Worker& one = *chosen_[index];
    dismiss(parts_.writer, one, team_.group_of(one),
            [self = shared_from_this(), index, ended = std::move(ended)](const Result<bool>& done) {
              if (!done && done.error().code() == Code::kConflict) return ended({});
              if (!done) return ended(done.error());
              self->note(*self->chosen_[index], *done);
              ended({});
            });
  }

  void note(const Worker& one, bool by_us) {
    gone_.insert(one.pod.uid);
    if (!by_us) return;
    const bool collector = one.pod.role == Role::kCollector;
    ++fewer_[one.pod.role];
    --wanted_[collector ? 0 : 1];
    plain_deleted_ = plain_deleted_ || one.pod.role == Role::kLearner;
    (collector ? deleted_.collectors : deleted_.learners)->push_back(one.pod.url());
  }

  void finish(Status status) {
    if (fewer_.empty()) return done_({std::move(status), std::move(deleted_)});
    change_roll(
        parts_, owner_.pod,
        [fewer = fewer_](std::optional<Roll> roll) {
          for (const auto& [role, count] : fewer) {
            Size* const size = roll ? roll->find(role) : nullptr;
            if (size != nullptr) size->replicas = std::max(0, size->replicas - count);
          }
          return roll;
        },
        [self = shared_from_this(), status = std::move(status)](const Status&) {
          self->done_({status, std::move(self->deleted_)});
        });
  }

  const Parts parts_;
  const Owner owner_;
  const Finished done_;
  int wanted_[2]{};  // collectors, learners: still to go
  int rounds_ = 0;
  bool plain_deleted_ = false;
  bool aggregators_ = false;  // of learners, only logical ones are left to delete
  std::vector<Worker> workers_;
  Team team_;
  WorkerList chosen_;
  std::set<std::string> gone_;  // uids
  std::map<Role, int> fewer_;   // deleted by this request
  Replicas deleted_;
};

}  // namespace

bool is_dismissed(const Worker& worker) {
  return !worker.object.string_at({"metadata", "annotations", kDismissed}).empty();
}

void delete_replicas(const Parts& parts, const Owner& owner, const Demand& demand, Finished done) {
  std::make_shared<Deletion>(parts, owner, demand, std::move(done))->round();
}

void remove_worker(PodWriter& writer, const Worker& worker, const WorkerList& group, bool at_once,
                   std::function<void(Result<bool>)> done) {
  std::vector<json::Value> pods;
  for (const Worker* each : group) pods.push_back(each->object);
  const auto shared = std::make_shared<std::vector<json::Value>>(std::move(pods));
  run_batch(
      shared->size(), kWidth,
      [&writer, shared, at_once](std::size_t index, std::function<void(Status)> ended) {
        writer.remove((*shared)[index], at_once,
                      [ended = std::move(ended)](const Result<bool>& removed) {
                        ended(removed ? Status() : removed.error());
                      });
      },
      [&writer, pod = worker.object, at_once, done = std::move(done)](Status status) {
        if (!status.ok()) return done(failure(std::move(status)));
        writer.remove(pod, at_once, done);
      });
}

void dismiss(PodWriter& writer, const Worker& worker, const WorkerList& group,
             std::function<void(Result<bool>)> done) {
  std::vector<Worker> ddp;
  for (const Worker* each : group) ddp.push_back(*each);
  const auto kept = std::make_shared<std::vector<Worker>>(std::move(ddp));
  writer.annotate(worker.object, kDismissed, "true", true,
                  [&writer, worker, kept, done = std::move(done)](Status status) {
                    if (!status.ok()) return done(failure(std::move(status)));
                    WorkerList list;
                    for (const Worker& each : *kept) list.push_back(&each);
                    remove_worker(writer, worker, list, false, done);
                  });
}

}  // namespace divisi::server::first
