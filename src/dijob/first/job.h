// Job: a first-generation (v1alpha1) DIJob. The operator runs its coordinator; collectors and
// learners are created by di-server when the coordinator asks for them.
//
//   if (first::is_first_generation(object)) {
//     DIVISI_TRY(first::Job job, first::read_job(object));   // kInvalid: cannot be decoded
//     if (const Status bad = first::check(job); !bad.ok()) ... the job fails with bad.message()
//
// Pure functions of the object.
#pragma once

#include "base/status.h"
#include "dijob/first/names.h"
#include "dijob/job.h"
#include "json/value.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace divisi::dijob::first {

struct Job {
  std::string space{};
  std::string name{};
  std::string uid{};
  std::int64_t generation = 0;
  bool deleting = false;
  std::string created{};  // RFC 3339

  std::string priority_class{};
  CleanPods clean_pods = CleanPods::kRunning;
  bool has_clean_pods = false;         // false: spec.cleanPodPolicy is absent or empty
  std::vector<json::Value> volumes{};  // for every role but the aggregator
  json::Value coordinator{};           // pod templates: metadata and spec
  std::optional<json::Value> collector{};
  std::optional<json::Value> learner{};
  bool aggregator_at_start = false;  // by annotation

  std::vector<std::string> warnings{};  // accepted in spite of how it is written
  std::vector<std::string> faults{};    // values that their field cannot have; for check()

  // The template of that role; null when the spec has none. DDP learners use the learner's;
  // aggregators have theirs in an AggregatorConfig.
  const json::Value* find_template(Role role) const noexcept;
};

// Whether `spec` has a coordinator and nothing of the second generation. The version that the
// object was written in does not matter.
bool is_first_generation(const json::Value& object);

// Fails for what is_first_generation() denies and for fields of the wrong kind.
Result<Job> read_job(const json::Value& object);

// The first violation of what a job must be. Pod templates are the API server's to judge.
Status check(const Job& job);

// spec.aggregator.template of an AggregatorConfig. kInvalid when there is none.
Result<json::Value> read_aggregator_template(const json::Value& config);

}  // namespace divisi::dijob::first
