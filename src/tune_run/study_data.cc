#include "tune_run/study_data.h"

#include "tune_run/value_json.h"

#include <algorithm>
#include <tuple>

namespace divisi::tune_run {
namespace {

// Whether `a` is at least as good everywhere and better somewhere.
bool dominates(const StudyData& data, const StudyTrial& a, const StudyTrial& b) {
  bool better = false;
  const std::size_t count = std::min(a.record.values.size(), b.record.values.size());
  for (std::size_t i = 0; i < count; ++i) {
    const double sign = data.maximize(i) ? -1 : 1;
    const double mine = sign * a.record.values[i];
    const double other = sign * b.record.values[i];
    if (mine > other) return false;
    better = better || mine < other;
  }
  return better;
}

}  // namespace

std::string StudyData::target_name(std::size_t index) const {
  if (index >= spec.targets.size()) return "target";
  // A field of the result by its own name.
  std::string_view text = spec.targets[index];
  if (!text.starts_with("R['") || !text.ends_with("']")) return std::string(text);
  text = text.substr(3, text.size() - 5);
  return std::string(text.find('\'') == std::string_view::npos ? text : spec.targets[index]);
}

bool StudyData::maximize(std::size_t index) const {
  return index < spec.maximize.size() && spec.maximize[index];
}

std::vector<const StudyTrial*> StudyData::finished() const {
  std::vector<const StudyTrial*> found;
  for (const StudyTrial& trial : trials) {
    const bool ok = trial.record.stage == tune::TrialStage::kOk && !trial.record.values.empty();
    if (ok) found.push_back(&trial);
  }
  return found;
}

std::vector<const StudyTrial*> StudyData::ranked() const {
  std::vector<const StudyTrial*> order = finished();
  const double sign = maximize() ? -1 : 1;
  std::ranges::sort(order, {}, [&](const StudyTrial* trial) {
    const tune::TrialRecord& record = trial->record;
    return std::tuple(record.violation > 0, sign * record.values[0], record.id);
  });
  return order;
}

std::vector<const StudyTrial*> StudyData::pareto() const {
  const std::vector<const StudyTrial*> all = ranked();
  std::vector<const StudyTrial*> front;
  for (const StudyTrial* one : all) {
    const bool beaten = std::ranges::any_of(
        all, [&](const StudyTrial* other) { return dominates(*this, *other, *one); });
    if (!beaten) front.push_back(one);
  }
  return front;
}

StudyData read_study(const tune::Study& study) {
  StudyData data;
  data.spec = study.spec();
  for (const auto& [name, space] : tune::parse_space_text(data.spec.space)) {
    data.names.push_back(name);
    data.spaces.push_back(space);
  }
  for (tune::TrialRecord& record : study.trials()) {
    StudyTrial trial{std::move(record), {}, {}};
    trial.config = from_text(trial.record.config);
    for (const std::string& name : data.names)
      trial.variables.push_back(value_at(trial.config, name));
    data.trials.push_back(std::move(trial));
  }
  return data;
}

Result<StudyData> load_study(const std::string& url, const std::string& name) {
  try {
    return read_study(tune::Study::load(url, name));
  } catch (const Error& error) {
    return failure(error.code(), "{}", error.what());
  }
}

}  // namespace divisi::tune_run
