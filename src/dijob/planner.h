// Planner: the steps of plan(), for both forms of a job.
#pragma once

#include "dijob/draft.h"
#include "dijob/failures.h"
#include "dijob/plan.h"
#include "dijob/roster.h"
#include "dijob/seats.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

class Planner {
 public:
  explicit Planner(const Observed& seen)
      : seen_(seen),
        job_(seen.job),
        status_(seen.object, kSecondGeneration, seen.now),
        failures_(status_) {}
  Plan run();

 private:
  // planner.cc: what all jobs have in common.
  void admit();
  void note_secret();
  Status settle();  // sizes, then whether the job can run
  bool use_last_good(const Status& bad);
  void settle_size();
  std::optional<int> gang_size();
  bool sync_spec();  // true: the spec must be written first
  void save_spec();
  void keep_ranks_of_pods();
  void adopt();
  void tell_blocked();
  void tell_waiting();
  void name_pods_for_scale();
  Status check_form();                   // kConflict: an edit that is not applied
  void tell_edits(std::string refused);  // empty: none but those of the spec itself
  bool deadline_passed();
  void suspend();
  void support();  // service and secret
  Told when_told() const;
  template <class Kind>
  bool plans() const {  // whether an action of that kind
    return std::ranges::any_of(
        out_.actions, [](const Action& each) { return std::holds_alternative<Kind>(each); });
  }
  Plan finish();

  // planner_end.cc: jobs that are over.
  void succeed();
  void fail(std::string message, bool by_pods = false);
  Plan clean();
  void expire();

  // planner_tasks.cc
  void plan_tasks();
  const json::Value* ranks_record() const;
  void step_tasks();
  void read_seats();
  Seat seat_of(const Task& task, const Pod& pod) const;
  void place_by_allocation();
  void pending_tasks();
  void settled_tasks();
  void restarting();
  void rescheduling();
  void reschedule(std::string message);
  bool complete() const;
  bool all_taken() const;
  bool ready_enough() const;
  bool in_order(const Seated& seat) const;
  void fill_seats(bool replace_failed);
  void drop_surplus();
  void roll();
  void count_pods();

  // planner_template.cc
  void plan_template();
  struct Gang {
    int want = 0;           // pods
    int live = 0;           // pods that are not leaving
    bool mismatch = false;  // some are not of this gang, of this size, or at their place
    bool whole = false;
  };
  void step_template();
  Gang seat_gang();
  Seat seat_of_gang(const Task& task, const Pod& pod) const;
  void leave_generation();
  void pending_gang(const Gang& gang);
  void create_gang(int want);
  void restart_gang(std::string message);

  // planner_budget.cc: what failures cost.
  struct Failed {
    std::vector<const Seated*> seats{};
    std::vector<const Seated*> free{};  // of the wave that was paid for
    std::vector<const RefusedPod*> refused{};
    bool charged() const { return !seats.empty() || !refused.empty(); }
    bool empty() const { return !charged() && free.empty(); }
  };
  Failed failed() const;
  bool in_wave() const;
  bool made_in_wave(const Seated& seat) const;
  bool must_fail_at_once();
  // Enters Restarting, counted, or fails the job.
  void restart_or_fail(const Failed& failed);
  // What belongs to the wave that was paid for.
  void restart_free(const Failed& failed);
  bool pay(const Failed& failed);

  // Under which name a seat's failures are kept: of a gang the same in each generation.
  std::string failure_key(const Seated& seat) const;
  void create(const Seated& seat);
  const std::string& hash_of(const Task& task);  // template_hash(), once
  void remove(const Pod& pod);
  void force_stuck();
  void tell(std::string_view type, std::string_view reason, std::string message);
  void look_again(std::chrono::milliseconds after);
  const std::vector<std::string>& allocation() const;  // empty: none
  std::string node_of(const Seated& seat) const;       // of a preemptible job; "" otherwise

  const Observed& seen_;
  Job job_;
  Draft status_;
  Failures failures_;
  Roster roster_{};
  Seating seating_{};
  std::optional<PodMaker> maker_{};
  std::map<const Task*, std::string> hashes_{};
  std::string edit_refused_{};  // of the spec itself
  std::string size_refused_{};  // a size that is put back
  bool last_good_ = false;      // job_ is not what the object says
  Plan out_{};
};

}  // namespace divisi::dijob
