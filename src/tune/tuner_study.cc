#include "tune/tuner_study.h"

#include "divisi/pareto.h"
#include "json/value.h"
#include "tune/value_json.h"

#include <algorithm>
#include <charconv>

namespace divisi::tune {
namespace {

StudySpec spec_of(const TunerStorage& storage, const Structure& structure,
                  const std::string& algorithm, std::vector<bool> maximize,
                  std::vector<std::string> targets, std::optional<std::uint64_t> seed) {
  std::vector<Space> spaces;
  std::vector<std::string> chains;
  for (const HyperValue& value : structure.flatten()) {
    spaces.push_back(value.space());
    Value::Array chain;
    for (const HyperValue::Transform& one : value.transforms()) {
      chain.emplace_back(Value::Array{one.operand_first ? "r" + one.name : one.name, one.operand});
    }
    chains.push_back(value_to_json(chain));
  }
  json::Value options = json::Object{};
  if (seed) options["seed"] = std::to_string(*seed);  // JSON's whole numbers have 63 bits here
  return {.name = storage.name,
          .space = space_text(structure.flat_names(), spaces, chains),
          .maximize = std::move(maximize),
          .targets = std::move(targets),
          .algorithm = algorithm,
          .options = json::print(options)};
}

Trial trial_of(const TrialRecord& record) {
  Trial trial;
  trial.id = record.id;
  trial.state = TrialState::kOk;
  trial.record = {.config = value_from_json(record.config),
                  .returned = value_from_json(record.returned),
                  .metrics = value_from_json(record.metrics)};
  trial.value = record.values.empty() ? 0 : record.values.front();
  trial.values = record.values;
  trial.violation = record.violation;
  trial.tries = record.tries;
  return trial;
}

}  // namespace

TunerStudy::TunerStudy(const TunerStorage& storage, const Structure& structure,
                       const std::string& algorithm, std::vector<bool> maximize,
                       std::vector<std::string> targets, std::optional<std::uint64_t> seed)
    : structure_(structure),
      study_(Study::open(
          storage.url,
          spec_of(storage, structure, algorithm, std::move(maximize), std::move(targets), seed),
          {.resume = storage.resume,
           .words = {.resume = "Tuner::resume", .name = "Tuner::storage"}})) {}

std::optional<std::uint64_t> TunerStudy::seed() const {
  const Result<json::Value> options = json::parse(study_.spec().options);
  const std::string_view text = options ? options->string_at({"seed"}) : std::string_view();
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return seed;
}

std::optional<Sample> TunerStudy::ask(Sampler& sampler) {
  const std::optional<TrialRecord> record =
      study_.ask(sampler, [this](const Sample& sample) -> std::string {
        try {
          return value_to_json(structure_.config(sample.values));
        } catch (const UsageError&) {
          return {};  // the trial will fail, and say why
        }
      });
  if (!record) return std::nullopt;
  return Sample{.id = record->id, .values = record->raw};
}

void TunerStudy::tell(const Trial& trial) {
  Told told{.state = trial.state, .error = trial.error, .tries = trial.tries};
  if (trial.state == TrialState::kOk) {
    told.values = trial.values;
    told.violation = trial.violation;
    told.returned = value_to_json(trial.record.returned);
  }
  if (trial.state == TrialState::kPruned) told.values = {trial.value};
  if (!trial.record.metrics.is_nil()) told.metrics = value_to_json(trial.record.metrics);
  study_.tell(trial.id, told);
}

std::vector<Direction> TunerStudy::directions() const {
  std::vector<Direction> directions;
  const StudySpec spec = study_.spec();
  for (const bool larger : spec.maximize) {
    directions.push_back(larger ? Direction::kMaximize : Direction::kMinimize);
  }
  return directions;
}

std::vector<Trial> TunerStudy::pareto() const {
  const auto counts = [](const TrialRecord& record) {
    return record.stage == TrialStage::kOk && record.violation == 0 &&
           std::all_of(record.values.begin(), record.values.end(),
                       [](double value) { return std::isfinite(value); });
  };
  if (study_.spec().maximize.size() == 1) {
    // Of equal ones the first: a front would hold them all.
    const std::optional<TrialRecord> best = study_.best();
    return best && counts(*best) ? std::vector{trial_of(*best)} : std::vector<Trial>{};
  }
  ParetoFront front(directions());
  for (const TrialRecord& record : study_.trials()) {
    if (counts(record)) front.insert(record.id, record.values);
  }
  std::vector<Trial> trials;
  for (const ParetoFront::Member& member : front.members()) {
    trials.push_back(trial_of(study_.trial(member.id).value()));
  }
  return trials;
}

std::vector<Trial> TunerStudy::ranked(const std::vector<Trial>& own, std::size_t capacity) {
  study_.refresh();
  RankList ranking(capacity, directions());
  // Few are read in full: the others only lend their values to the order.
  for (const TrialRecord& record : study_.trials()) {
    if (record.stage != TrialStage::kOk) continue;
    Trial trial;
    trial.id = record.id;
    trial.value = record.values.empty() ? 0 : record.values.front();
    trial.values = record.values;
    trial.violation = record.violation;
    ranking.insert(trial);
  }
  std::vector<Trial> trials;
  for (const Trial& one : ranking.trials()) {
    const auto mine = std::find_if(own.begin(), own.end(),
                                   [&](const Trial& trial) { return trial.id == one.id; });
    trials.push_back(mine != own.end() ? *mine : trial_of(study_.trial(one.id).value()));
  }
  return trials;
}

}  // namespace divisi::tune
