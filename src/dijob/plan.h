// plan(): what to do about a job, given all that is known. Pure: no clock, no server, no memory.
//
// A plan first writes the status, when it differs; what it does to the cluster rests on a status
// that was written. So a restart is counted before the pod is replaced, exactly once, and whoever
// continues after a crash comes to the same plan. Only the first pods of a job come before its
// first status: what that will say, the pods tell as well.
#pragma once

#include "dijob/job_status.h"
#include "dijob/pod.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace divisi::dijob {

// The server will not take this pod however often it is asked: it is invalid.
struct RefusedPod {
  std::string name{};
  std::string why{};
};

// A spec that was good, as a ControllerRevision of the job keeps it.
struct SavedSpec {
  std::string name{};
  std::int64_t generation = 0;
  json::Value spec{};
};

// What looks like the job's but has no owner.
struct Orphan {
  bool service = false;
  std::string name{};
  std::string uid{};
  json::Value owners{};  // those it has, none of which is its controller
};

struct Observed {
  json::Value object{};  // the DIJob
  Job job{};             // what it says; of one that cannot be read only whose it is
  Status unreadable{};   // why it cannot be
  std::vector<Pod> pods{};
  std::vector<std::string> services{};             // names of those that belong to the job
  std::map<std::string, json::Value> selectors{};  // of these, by name
  std::vector<RefusedPod> refused{};               // since the last status
  std::vector<Orphan> orphans{};
  std::vector<SavedSpec> saved{};    // by generation
  std::int64_t saved_until = 0;      // the generation that was saved last
  std::string collides_with{};       // an older job whose pods have the names of this one's
  std::string blocked{};             // why pods cannot be made at present
  std::string secret_hash{};         // of the job's secret, if this operator knows it
  bool made_secret = false;          // by this operator: it was not there
  std::chrono::milliseconds hold{};  // so long no pod is to be made
  WallTime now{};
  ClusterNames names{};
  bool tell_first = false;  // the status of a new job is not to wait for its pods
};

// When a status is written.
enum class Told {
  kFirst,   // before anything is done
  kSoon,    // of a new job: its pods come first, and those of other jobs may
  kCounts,  // only counts of pods have changed: from time to time
};

struct CreatePod {
  std::string name{};
  json::Value object{};
};
struct DeletePod {
  std::string name{};
  std::string uid{};
  bool ended = false;  // nothing of it runs: it needs no time to end
  bool force = false;  // its node is lost: nobody else will take it away
  std::string node{};  // of one that goes by force
};
struct CreateService {
  json::Value object{};
};
struct DeleteService {
  std::string name{};
  std::string uid{};  // of that one only; empty: of whichever has the name
};
struct RepairService {  // somebody has edited it
  std::string name{};
  json::Value patch{};  // merge patch
};
struct CreateSecret {
  bool was_there = false;  // a pod has mounted it: one that is refused is not worth to wait for
};
struct DeleteJob {};
struct Adopt {  // becomes the job's
  Orphan orphan{};
};
struct SaveSpec {
  json::Value object{};  // the ControllerRevision
};
struct DeleteSavedSpec {
  std::string name{};
};
using Action = std::variant<CreatePod, DeletePod, CreateService, DeleteService, RepairService,
                            CreateSecret, DeleteJob, Adopt, SaveSpec, DeleteSavedSpec>;

struct Event {
  std::string type{};  // Normal, Warning
  std::string reason{};
  std::string message{};
};

struct Plan {
  std::optional<json::Value> spec_patch{};  // merge patch, before everything else
  std::optional<json::Value> status{};      // whole; differs from the present one
  Told told = Told::kFirst;
  std::vector<Event> events{};    // told when the status is written (or at once without)
  std::vector<Action> actions{};  // empty while something must be written first
  std::optional<std::chrono::milliseconds> look_again{};

  void tell(std::string_view type, std::string_view reason, std::string message) {
    events.push_back({std::string(type), std::string(reason), std::move(message)});
  }
  // The earliest time counts.
  void look_in(std::chrono::milliseconds after) {
    after = std::max(after, std::chrono::milliseconds(1));
    if (!look_again || after < *look_again) look_again = after;
  }
};

Plan plan(const Observed& observed);

}  // namespace divisi::dijob
