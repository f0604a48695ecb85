// plan(): what to do about a job, given all that is known. Pure: no clock, no server, no memory.
//
// A plan first writes the status, when it differs; what it does to the cluster rests on a status
// that was written. So a restart is counted before the pod is replaced, exactly once, and whoever
// continues after a crash comes to the same plan. Only the first pods of a job come before its
// first status: what that will say, the pods tell as well.
#pragma once

#include "dijob/pod.h"

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace divisi::dijob {

using WallTime = std::chrono::system_clock::time_point;

// The server will not take this pod however often it is asked (invalid, forbidden).
struct RefusedPod {
  std::string name{};
  std::string why{};
};

struct Observed {
  json::Value object{};  // the DIJob
  std::vector<Pod> pods{};
  std::vector<std::string> services{};  // names of those that belong to the job
  std::vector<RefusedPod> refused{};    // since the last status
  WallTime now{};
  ClusterNames names{};
  bool has_secret = false;  // its Secret was made
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
  bool force = false;  // its grace period is over
};
struct CreateService {
  json::Value object{};
};
struct DeleteService {
  std::string name{};
};
struct CreateSecret {};
struct DeleteJob {};
using Action =
    std::variant<CreatePod, DeletePod, CreateService, DeleteService, CreateSecret, DeleteJob>;

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
};

Plan plan(const Observed& observed);

}  // namespace divisi::dijob
