// JobStatus: the status of a DIJob, typed. Every field of it that this product reads or writes
// stands here and, with its name, in job_status.cc; who writes it is said beside it.
//
//   JobStatus status = read_job_status(object);
//   status.restarts = 2;
//   json::Value written = write_job_status(status, before);   // what nobody here knows stays
#pragma once

#include "dijob/sizes.h"
#include "json/value.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

using WallTime = std::chrono::system_clock::time_point;

// The words of status.form.
namespace forms {
inline constexpr std::string_view kTasks = "tasks";
inline constexpr std::string_view kTemplate = "template";
inline constexpr std::string_view kCoordinator = "coordinator";  // v1alpha1
}  // namespace forms

// status.failures: what has become of the pods of one seat.
struct SeatFailures {
  std::string uid{};                      // of the pod that failed last
  std::vector<std::string> older{};       // of those before it
  std::int64_t count = 0;                 // in a row
  std::optional<WallTime> time{};         // of the last one
  std::optional<std::int64_t> restart{};  // status.restarts when it was entered

  friend bool operator==(const SeatFailures&, const SeatFailures&) = default;
};

// status.replicaStatus of the first generation: pods of one role.
struct RoleCounts {
  int active = 0;
  int succeeded = 0;
  int failed = 0;

  friend bool operator==(const RoleCounts&, const RoleCounts&) = default;
};

// Empty texts, empty lists and maps, and null are absent fields.
struct JobStatus {
  // Of every job.
  std::string phase{};
  std::string form{};        // the form the job began with: it keeps it
  json::Array conditions{};  // see Draft
  std::optional<std::int64_t> observed_generation{};
  std::optional<WallTime> start_time{};
  std::optional<WallTime> completion_time{};
  std::optional<int> replicas{};  // wanted; of the template form others write it, too
  std::optional<int> ready_replicas{};
  std::optional<int> scaled_replicas{};  // for /scale, with the next
  std::string selector{};
  std::string secret_name{};
  std::string secret_hash{};  // by which di-server knows callers

  // Tasks form and template form.
  std::optional<int> restarts{};  // first generation: how often the coordinator was made again
  std::optional<int> reschedules{};
  std::optional<int> spent_restarts{};         // of the budget of the job
  std::map<std::string, int> task_restarts{};  // of the budgets of tasks
  std::optional<WallTime> wave_time{};         // since when failures belong to the one paid for
  std::optional<int> generation{};             // template form: of the gang
  std::map<std::string, std::map<std::string, int>> task_status{};
  std::vector<std::string> succeeded{};  // names of pods
  std::map<std::string, SeatFailures, std::less<>> failures{};
  json::Value ranks{};  // see Roster
  std::optional<Sizes> sizes{};
  std::string restarted_at{};                            // the last roll that is done
  std::string rolling{};                                 // the pod that is rolled
  std::optional<std::vector<std::string>> allocation{};  // the allocator: a node by rank

  // First generation.
  std::map<std::string, RoleCounts> replica_status{};
  std::string coordinator_uid{};  // of the coordinator pod that was seen last
};

JobStatus read_job_status(const json::Value& object);
// `before` is the status that `read` was read from: fields that are as they were stay as they are
// written there, whatever that is.
json::Value write_job_status(const JobStatus& status, const JobStatus& read,
                             const json::Value& before);

// Takes the counts of pods away, on which nothing rests and which change often.
void erase_counts(json::Value& status);

// Of an object, without the rest.
std::string_view form_of(const json::Value& object);
std::string_view phase_of(const json::Value& object);
// Whether the operator has seen the spec as it is now.
bool has_seen_spec(const json::Value& object);

}  // namespace divisi::dijob
