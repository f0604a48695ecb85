// PodLogs: what the pods of a job print, each pod in order, no line twice and none left out.
//
//   PodLogs logs(client, space, {.follow = true}, [&](OutputLine line) {...});
//   logs.look_at(pod);      // at each change of a pod; opens its log once there is one
//   logs.gone(uid);
//   logs.settled()          // every log that was opened has been read to its end
//
// A stream that breaks goes on where it was: the server is asked for the last seconds again, and
// what was there before is dropped. A pod that takes the place of another is a log of its own.
// Loop only.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "kube/client.h"
#include "run/output.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace divisi::run {

struct PodLogsOptions {
  bool follow = true;
  std::set<int> ranks{};  // empty: all
  std::optional<std::chrono::system_clock::time_point> since{};
};

class PodLogs {
 public:
  PodLogs(kube::Client& client, std::string space, PodLogsOptions options,
          std::function<void(OutputLine)> on_line, std::function<void()> on_change);
  ~PodLogs();
  PodLogs(const PodLogs&) = delete;
  PodLogs& operator=(const PodLogs&) = delete;

  void look_at(const json::Value& pod);
  void gone(const std::string& uid);  // the pod is no more: what was not read is lost
  bool settled() const;
  const Status& trouble() const noexcept { return trouble_; }  // no right to read them
  // Holds the server back while nobody takes the lines.
  void pause(bool paused);

 private:
  class Log;
  kube::Client& client_;
  const std::string space_;
  const PodLogsOptions options_;
  const std::function<void(OutputLine)> on_line_;
  const std::function<void()> on_change_;
  bool paused_ = false;
  Status trouble_;
  std::map<std::string, std::unique_ptr<Log>> logs_;  // by the pod's uid
};

// Lines of a log with times, as they come; what a stream that was opened again repeats is dropped.
class TimedLines {
 public:
  // "2026-11-17T14:00:00.123456789Z text". Nothing for a line that is a repetition.
  std::optional<OutputLine> take(const std::string& line);
  // From when a stream that continues has to be asked for; nothing: from its beginning. What it
  // repeats is expected from now on.
  std::optional<std::chrono::system_clock::time_point> resume();

 private:
  using Time = std::chrono::system_clock::time_point;
  std::optional<Time> newest_;
  std::multimap<Time, std::size_t> recent_;  // hashes of whole lines
  std::multiset<std::size_t> repeats_;
};

}  // namespace divisi::run
