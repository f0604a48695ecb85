#include "pod_table.h"

#include "dijob/names.h"
#include "io/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

namespace divisi::apps {
namespace {

using run::JobState;

JobState state_of(const json::Value& pod) {
  const std::string_view phase = pod.string_at({"status", "phase"});
  if (phase == "Succeeded") return JobState::kSucceeded;
  if (phase == "Failed") return JobState::kFailed;
  if (phase != "Running") return JobState::kPending;
  const json::Value* const conditions = pod.find_path({"status", "conditions"});
  if (conditions == nullptr || conditions->as_array() == nullptr) return JobState::kStarting;
  const bool ready = std::ranges::any_of(*conditions->as_array(), [](const json::Value& condition) {
    return condition.string_at({"type"}) == "Ready" && condition.string_at({"status"}) == "True";
  });
  return ready ? JobState::kRunning : JobState::kStarting;
}

std::optional<int> annotated_rank(const json::Value& pod) {
  const std::string_view text =
      pod.string_at({"metadata", "annotations", dijob::annotations::kRank});
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(rank)
                                                                  : std::nullopt;
}

const json::Array& list_at(const json::Value& object,
                           std::initializer_list<std::string_view> path) {
  static const json::Array none;
  const json::Value* const found = object.find_path(path);
  return found == nullptr || found->as_array() == nullptr ? none : *found->as_array();
}

bool wants_gpu(const json::Value& pod) {
  return std::ranges::any_of(
      list_at(pod, {"spec", "containers"}), [](const json::Value& container) {
        return container.find_path({"resources", "limits", "nvidia.com/gpu"}) != nullptr;
      });
}

// How its containers stand: restarts, and how the first that failed has ended.
struct Ending {
  int restarts = 0;
  std::optional<int> code{};
  std::string reason{};
};

void look_at(const json::Value& container, bool init, Ending& ending) {
  ending.restarts += static_cast<int>(container.int_at({"restartCount"}).value_or(0));
  if (const json::Value* waiting = container.find_path({"state", "waiting"})) {
    const std::string_view message = waiting->string_at({"message"});
    const std::string_view reason = waiting->string_at({"reason"});
    if (ending.reason.empty() && reason != "PodInitializing") {
      ending.reason = message.empty() ? reason : message;
    }
  }
  const json::Value* const end = container.find_path({"state", "terminated"});
  if (end == nullptr || ending.code.value_or(0) != 0) return;
  const int code = static_cast<int>(end->int_at({"exitCode"}).value_or(0));
  if (code == 0 && init) return;
  ending.code = code;
  if (const auto signal = end->int_at({"signal"})) {
    ending.reason = fmt::format("killed by {}", io::signal_name(static_cast<int>(*signal)));
  } else if (init) {
    ending.reason = fmt::format("init container {} failed", container.string_at({"name"}));
  }
}

Ending ending_of(const json::Value& pod) {
  Ending ending;
  for (const json::Value& container : list_at(pod, {"status", "initContainerStatuses"})) {
    look_at(container, true, ending);
  }
  for (const json::Value& container : list_at(pod, {"status", "containerStatuses"})) {
    look_at(container, false, ending);
  }
  if (const std::string_view message = pod.string_at({"status", "message"}); !message.empty()) {
    ending.reason = message;
  }
  return ending;
}

std::string made_again_text(const run::WorkerRecord& before) {
  const std::string code = fmt::format("exit code {}", before.exit_code.value_or(1));
  return "made again after " + (before.reason.empty() ? code : before.reason);
}

}  // namespace

void PodTable::see(const json::Value& pod, bool removed) {
  const std::lock_guard lock(mutex_);
  const std::string name(pod.string_at({"metadata", "name"}));
  const auto [found, fresh] = pods_.try_emplace(name);
  Entry& entry = found->second;
  const std::string_view uid = pod.string_at({"metadata", "uid"});
  if (removed) {
    if (!keeps_ && entry.uid == uid) entry.gone = true;
    return;
  }
  run::WorkerRecord& shown = entry.shown;
  if (entry.uid != uid) {
    const bool failed = shown.state == JobState::kFailed;
    const int rank =
        annotated_rank(pod).value_or(fresh ? static_cast<int>(pods_.size()) - 1 : shown.rank);
    std::string reason = failed ? made_again_text(shown) : "";
    entry.made_again += failed ? 1 : 0;
    entry.uid = uid;
    entry.gone = false;
    shown = run::WorkerRecord{.rank = rank, .name = name, .reason = std::move(reason)};
  }
  const Ending ending = ending_of(pod);
  shown.task = pod.string_at({"metadata", "labels", dijob::labels::kTaskName});
  shown.host = pod.string_at({"status", "podIP"});
  shown.gpu = wants_gpu(pod);
  shown.state = state_of(pod);
  shown.restarts = entry.made_again + ending.restarts;
  shown.exit_code = ending.code;
  if (ending.code || !ending.reason.empty()) shown.reason = ending.reason;
}

void PodTable::keep() {
  const std::lock_guard lock(mutex_);
  keeps_ = true;
}

std::vector<run::WorkerRecord> PodTable::workers() const {
  const std::lock_guard lock(mutex_);
  std::vector<run::WorkerRecord> workers;
  for (const auto& [name, entry] : pods_) {
    if (!entry.gone) workers.push_back(entry.shown);
  }
  std::ranges::sort(workers, {}, [](const run::WorkerRecord& worker) {
    return std::tie(worker.rank, worker.name);
  });
  return workers;
}

int PodTable::rank_of(std::string_view pod) const {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(pod);
  return found == pods_.end() ? 0 : found->second.shown.rank;
}

}  // namespace divisi::apps
