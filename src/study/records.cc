#include "study/records.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

namespace divisi::tune {
namespace {

// Smaller is better: feasible ones, numbers, the value, the earlier one.
auto rank_of(const TrialRecord& trial, bool maximize) {
  const double value = trial.values.empty() ? std::nan("") : trial.values.front();
  const bool nan = std::isnan(value);
  return std::tuple(trial.violation, nan, nan ? 0.0 : (maximize ? -value : value), trial.id);
}

}  // namespace

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string_view stage_name(TrialStage stage) noexcept {
  switch (stage) {
    case TrialStage::kWaiting: return "waiting";
    case TrialStage::kRunning: return "running";
    case TrialStage::kOk: return "ok";
    case TrialStage::kFail: return "fail";
    case TrialStage::kSkip: return "skip";
    case TrialStage::kPruned: return "pruned";
  }
  return "unknown";
}

bool Records::has(const Change& change) const noexcept {
  const bool makes = change.kind == ChangeKind::kAdd || change.kind == ChangeKind::kAsk;
  if (!makes && change.kind != ChangeKind::kTell) return true;
  const TrialRecord* trial = find(change.trial);
  if (trial == nullptr) return false;
  return makes ? trial->raw == change.numbers : is_finished(trial->stage);
}

const TrialRecord* Records::find(std::uint64_t id) const noexcept {
  if (id == 0 || id > trials_.size()) return nullptr;
  return &trials_[static_cast<std::size_t>(id - 1)];
}

std::size_t Records::space_of(std::uint64_t id) const noexcept {
  const auto after = std::ranges::upper_bound(first_of_space_, id);
  return static_cast<std::size_t>(after - first_of_space_.begin()) - 1;
}

Status Records::check(const Change& change) const {
  switch (change.kind) {
    case ChangeKind::kWorker:
      if (change.worker == 0 || workers_.contains(change.worker)) {
        return make_status(Code::kInvalid, "worker {} cannot join: the number is taken",
                           change.worker);
      }
      return {};
    case ChangeKind::kBeat:
    case ChangeKind::kLeave:
      if (!workers_.contains(change.worker)) {
        return make_status(Code::kInvalid, "worker {} is unknown", change.worker);
      }
      return {};
    case ChangeKind::kSpace: return {};
    default: return check_trial(change);
  }
}

Status Records::check_trial(const Change& change) const {
  if (change.kind == ChangeKind::kAdd || change.kind == ChangeKind::kAsk) {
    if (change.trial == trials_.size() + 1) return {};
    return make_status(Code::kInvalid, "trial {} cannot be made: the next one is {}", change.trial,
                       trials_.size() + 1);
  }
  const TrialRecord* trial = find(change.trial);
  if (trial == nullptr) return make_status(Code::kInvalid, "there is no trial {}", change.trial);
  if (is_finished(trial->stage)) {
    return make_status(Code::kInvalid, "trial {} has its result already", change.trial);
  }
  if (change.kind == ChangeKind::kStart) return {};
  // A point of the user may come with its end; nobody runs it.
  const bool given = change.kind == ChangeKind::kTell && change.worker == 0;
  const TrialStage expected = given ? TrialStage::kWaiting : TrialStage::kRunning;
  if (trial->stage != expected || (!given && trial->worker != change.worker)) {
    return make_status(Code::kInvalid, "trial {} does not run here: it is {}", change.trial,
                       trial->stage == TrialStage::kWaiting
                           ? "waiting"
                           : fmt::format("with worker {}", trial->worker));
  }
  if (change.kind == ChangeKind::kReport && change.numbers.size() != 2) {
    return make_status(Code::kInvalid, "a report of trial {} is not a step and a value",
                       change.trial);
  }
  return {};
}

Status Records::apply(const Change& change) {
  DIVISI_TRY_STATUS(check(change));
  if (const auto worker = workers_.find(change.worker); worker != workers_.end()) {
    worker->second.seen = std::max(worker->second.seen, change.time);
  }
  switch (change.kind) {
    case ChangeKind::kWorker:
      workers_[change.worker] = {.identity = WorkerIdentity::parse(change.text_a),
                                 .joined = change.time,
                                 .seen = change.time};
      break;
    case ChangeKind::kBeat: break;
    case ChangeKind::kLeave: workers_[change.worker].left = true; break;
    case ChangeKind::kSpace:
      spaces_.push_back(change.text_a);
      first_of_space_.push_back(trials_.size() + 1);
      break;
    default: apply_to_trial(change);
  }
  last_change_ = std::max(last_change_, change.number);
  return {};
}

void Records::add_trial(const Change& change) {
  TrialRecord& trial = trials_.emplace_back();
  trial.id = change.trial;
  trial.raw = change.numbers;
  trial.config = change.text_a;
  trial.worker = change.worker;
  if (change.kind == ChangeKind::kAdd) {
    trial.origin = Origin::kUser;
  } else {
    trial.stage = TrialStage::kRunning;
    trial.attempt = 1;
    trial.tries = 1;
    trial.started = change.time;
  }
}

void Records::finish(TrialRecord& trial, const Change& change) {
  trial.stage =
      static_cast<TrialStage>(static_cast<int>(TrialStage::kOk) + static_cast<int>(change.state));
  trial.values = change.numbers;
  trial.violation = change.violation;
  trial.tries = change.count;
  trial.ended = change.time;
  trial.returned = change.text_a;
  trial.metrics = change.text_b;
  trial.error = change.text_c;
  if (trial.stage == TrialStage::kOk) compare_with_best(trial);
}

void Records::compare_with_best(const TrialRecord& trial) {
  for (const bool maximize : {false, true}) {
    const TrialRecord* const known = best(maximize);
    if (known != nullptr && rank_of(*known, maximize) < rank_of(trial, maximize)) continue;
    best_[maximize ? 1 : 0] = trial.id;
  }
}

void Records::apply_to_trial(const Change& change) {
  if (change.kind == ChangeKind::kAdd || change.kind == ChangeKind::kAsk) add_trial(change);
  TrialRecord& trial = at(change.trial);
  trial.changed = change.number;
  if (change.kind == ChangeKind::kStart) {
    trial.stage = TrialStage::kRunning;
    trial.worker = change.worker;
    trial.started = change.time;
    trial.tries = 1;
    trial.reports.clear();
    ++trial.attempt;
  } else if (change.kind == ChangeKind::kGiveBack) {
    trial.stage = TrialStage::kWaiting;
  } else if (change.kind == ChangeKind::kTry) {
    trial.tries = change.count;
    if (change.count > 1) trial.reports.clear();
  } else if (change.kind == ChangeKind::kReport) {
    trial.reports.emplace_back(std::llround(change.numbers[0]), change.numbers[1]);
  } else if (change.kind == ChangeKind::kTell) {
    finish(trial, change);
  }
  if (is_finished(trial.stage)) {
    open_.erase(trial.id);
  } else {
    open_[trial.id] = trial.stage;
  }
}

}  // namespace divisi::tune
