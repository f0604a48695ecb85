// Planner: the steps of first::plan().
#pragma once

#include "dijob/draft.h"
#include "dijob/failures.h"
#include "dijob/first/plan.h"

#include <string>
#include <string_view>

namespace divisi::dijob::first {

class Planner {
 public:
  explicit Planner(const Observed& seen)
      : seen_(seen),
        job_(seen.job),
        status_(seen.object, kFirstGeneration, seen.now),
        failures_(status_) {}
  Plan run();

 private:
  // planner.cc: the life of the job.
  Status settle();  // whether the spec can be used; ok, too, when an older one is in its place
  bool use_last_good(const Status& bad);
  void tell_edits();
  bool write_policy();  // true: the spec must be written first
  void admit();
  void note_coordinator();
  void count_pods();
  void step();
  void fail(std::string message);
  void succeed();
  void end();
  Plan clean();
  void save_spec();
  Plan finish();

  // planner_objects.cc: pods and services.
  void replace_rejected();
  void create_missing();
  Result<std::string> aggregator_url() const;
  void create(Role role, const std::string& aggregator_url);
  void serve_pods();
  void remove_unused_services();
  void remove_orphaned();
  void force_stuck();
  void tell_blocked();
  void tell_waiting();
  void remove(const Pod& pod);
  const SeenPod* find_pod(std::string_view name) const;
  const SeenService* find_service(std::string_view name) const;
  // Pods with fixed names, which the operator creates: theirs is a service even without a pod.
  bool is_ours(std::string_view name) const;
  bool is_complete() const;

  const Observed& seen_;
  Job job_;
  Draft status_;
  Failures failures_;
  std::string edit_refused_{};
  std::string no_aggregator_{};  // why the aggregator cannot be made
  bool readable_ = true;         // job_ has templates
  bool last_good_ = false;       // job_ is not what the object says
  Plan out_{};
};

// Whether the kubelet would not have the pod: no fault of the program.
bool was_rejected(const SeenPod& seen);

}  // namespace divisi::dijob::first
