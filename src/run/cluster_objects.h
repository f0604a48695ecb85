// What the objects of a cluster say about a job: pure functions of the DIJob or the Jobs, and of
// the pods, as the API server has them.
#pragma once

#include "json/value.h"
#include "run/options.h"
#include "run/record.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::run {

inline constexpr std::string_view kJobLabel = "divisi.opendilab.org/job";
// Which start of the job made an object: nobody else's is ever deleted.
inline constexpr std::string_view kRunNote = "divisi.opendilab.org/run";
// Of the pods of an Indexed Job: the rank of its index 0.
inline constexpr std::string_view kFirstRankNote = "divisi.opendilab.org/first-rank";
inline constexpr std::string_view kMainContainer = "di-container";

// The rank that a pod has in its job; nothing for one that is none of its workers.
std::optional<int> rank_of_pod(const json::Value& pod);

// The container whose end is the worker's: di-container, else the first.
std::string main_container_of(const json::Value& pod);
// Whether there is something to read of it: it runs, or has run.
bool has_log(const json::Value& pod);
// Whether its main container has ended.
bool pod_has_ended(const json::Value& pod);

// Why a pod does not start, with the words of docs/dijob.md: Unschedulable, ImagePull, Container.
struct PodWait {
  std::string kind{};
  std::string text{};
  friend bool operator==(const PodWait&, const PodWait&) = default;
};
std::optional<PodWait> wait_of_pod(const json::Value& pod);

// One worker by its pod.
WorkerRecord worker_of_pod(const json::Value& pod);

// Sets state, workers, exit_code and reason of `record`. `owners`: the DIJob, or the Jobs; none:
// the job was deleted. Pods that are not of this job are left out by the caller.
void judge_job(BackendKind kind, const std::vector<json::Value>& owners,
               const std::vector<json::Value>& pods, JobRecord& record);

// The Jobs that still work although another one of the same job has failed.
std::vector<std::string> jobs_to_end(const std::vector<json::Value>& jobs);

// What has to be changed for another number of workers: the scale of the job where that sizes the
// task (the collector, or the only one), otherwise its entry of spec.tasks. `task` is empty: the
// one that scale sizes, else "worker". kInvalid names the tasks.
struct Resize {
  bool by_scale = false;
  json::Value patch{};  // a merge patch of the scale, or a JSON patch of the job
};
Result<Resize> resize_of(const json::Value& dijob, int workers, const std::string& task);

// A DIJob that has no record here, as one.
JobRecord record_of_dijob(const json::Value& dijob);

}  // namespace divisi::run
