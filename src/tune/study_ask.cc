// Where a study meets the search: Study::ask(), and spaces as text.
#include "json/value.h"
#include "study/study_state.h"

#include <algorithm>
#include <cmath>

namespace divisi::tune {
namespace {

constexpr std::string_view kKinds[] = {"fixed", "separate", "continuous"};

json::Value space_to_json(const std::string& name, const Space& space) {
  json::Value value = json::Object{{"name", name}};
  value["kind"] = kKinds[static_cast<std::size_t>(space.kind()) - 1];
  if (space.kind() == Space::Kind::kFixed) {
    value["count"] = *space.count();
    return value;
  }
  value["lower"] = space.lower();
  value["upper"] = space.upper();
  if (space.kind() == Space::Kind::kSeparate) value["step"] = space.step();
  return value;
}

double number_in(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  if (found != nullptr && found->as_double() != nullptr) return *found->as_double();
  if (found != nullptr && found->as_int() != nullptr) return static_cast<double>(*found->as_int());
  throw UsageError(fmt::format("a space has no number '{}': {}", key, json::print(value)));
}

Space space_from_json(const json::Value& value) {
  const std::string_view kind = value.string_at({"kind"});
  if (kind == "fixed") return Space::fixed(value.int_at({"count"}).value_or(0));
  if (kind == "continuous") {
    return Space::continuous(number_in(value, "lower"), number_in(value, "upper"));
  }
  if (kind == "separate") {
    return Space::separate(number_in(value, "lower"), number_in(value, "upper"),
                           number_in(value, "step"));
  }
  throw UsageError(fmt::format("a space is of an unknown kind: {}", json::print(value)));
}

bool contains(const Space& space, double x) {
  if (space.kind() == Space::Kind::kFixed) {
    return x >= 0 && x < static_cast<double>(*space.count()) && x == std::floor(x);
  }
  return x >= space.lower() && x <= space.upper();
}

// The values that a trial of earlier spaces has in those of today; nothing if it lies outside.
std::optional<std::vector<double>> moved(const std::vector<double>& raw, const std::string& from,
                                         const std::string& to) {
  if (from == to) return raw;
  const Result<json::Value> earlier = json::parse(from);
  const Result<json::Value> today = json::parse(to);
  const json::Value* had = earlier ? earlier->find("variables") : nullptr;
  const json::Value* has = today ? today->find("variables") : nullptr;
  if (had == nullptr || has == nullptr || had->as_array() == nullptr ||
      has->as_array() == nullptr || had->as_array()->size() != raw.size()) {
    return std::nullopt;
  }
  const auto text_of = [](const json::Value& one, std::string_view key) {
    const json::Value* found = one.find(key);
    return found == nullptr ? std::string() : json::print(*found);
  };
  std::vector<double> values;
  for (const json::Value& variable : *has->as_array()) {
    const auto same =
        std::find_if(had->as_array()->begin(), had->as_array()->end(), [&](const json::Value& one) {
          return text_of(one, "name") == text_of(variable, "name") &&
                 text_of(one, "transforms") == text_of(variable, "transforms");
        });
    if (same == had->as_array()->end()) return std::nullopt;
    values.push_back(raw[static_cast<std::size_t>(same - had->as_array()->begin())]);
    if (!contains(space_from_json(variable), values.back())) return std::nullopt;
  }
  return values;
}

// False: a point with another number of values, which somebody has added.
bool is_adopted(Sampler& sampler, const Sample& sample, Origin origin) {
  try {
    sampler.adopt(sample, origin);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace

std::string space_text(const std::vector<std::string>& names, const std::vector<Space>& spaces,
                       const std::vector<std::string>& transforms) {
  if (names.size() != spaces.size() ||
      (!transforms.empty() && transforms.size() != spaces.size())) {
    throw UsageError(fmt::format("{} names for {} spaces", names.size(), spaces.size()));
  }
  json::Array variables;
  for (std::size_t i = 0; i < names.size(); ++i) {
    json::Value variable = space_to_json(names[i], spaces[i]);
    if (!transforms.empty() && !transforms[i].empty()) {
      Result<json::Value> chain = json::parse(transforms[i]);
      if (!chain) throw_if_failed(chain.error().with_context("the transforms of a space"));
      variable["transforms"] = *std::move(chain);
    }
    variables.push_back(std::move(variable));
  }
  return json::print(json::Object{{"variables", std::move(variables)}});
}

std::vector<std::pair<std::string, Space>> parse_space_text(std::string_view text) {
  const Result<json::Value> value = json::parse(text, {.max_bytes = std::size_t{1} << 30U});
  if (!value) throw_if_failed(value.error().with_context("the space of a study"));
  const json::Value* variables = value->find("variables");
  if (variables == nullptr || variables->as_array() == nullptr) {
    throw UsageError("the space of a study has no list of variables");
  }
  std::vector<std::pair<std::string, Space>> spaces;
  for (const json::Value& one : *variables->as_array()) {
    spaces.emplace_back(one.string_at({"name"}), space_from_json(one));
  }
  return spaces;
}

// What the study knows and the sampler does not, in the order in which it happened.
void Study::feed(Sampler& sampler) {
  State& state = *state_;
  for (const State::Event& event : std::exchange(state.unfed, {})) {
    const TrialRecord* trial = state.records.find(event.trial);
    if (trial == nullptr) continue;
    if (event.ended) {
      // An end that could not be stored was none.
      if (!is_finished(trial->stage) || state.held.erase(trial->id) == 0) continue;
      const auto ended = static_cast<int>(trial->stage) - static_cast<int>(TrialStage::kOk);
      Outcome outcome{.state = static_cast<TrialState>(ended),
                      .values = trial->values,
                      .violation = trial->violation};
      const std::optional<std::size_t> wanted = sampler.objectives();
      if (wanted && outcome.values.size() != *wanted && outcome.state == TrialState::kOk) {
        // Of no use here, but it must not end the search.
        outcome = {.state = TrialState::kFail, .values = {}};
      }
      sampler.tell(trial->id, std::move(outcome));
      continue;
    }
    const std::optional<std::vector<double>> values =
        moved(trial->raw, state.records.spaces()[state.records.space_of(trial->id)],
              state.records.spaces().back());
    if (const auto own = state.held.find(trial->id); own != state.held.end()) {
      // The sampler's own trial of that number was not stored, and somebody else made one.
      if (values && own->second == *values) continue;
      state.held.erase(own);
      sampler.tell(trial->id, TrialState::kSkip);
    } else if (values && is_adopted(sampler, {.id = trial->id, .values = *values}, trial->origin)) {
      state.held.emplace(trial->id, *values);
    } else {
      sampler.skip_ids(trial->id);  // kept for its rank only
    }
  }
}

std::optional<TrialRecord> Study::ask(Sampler& sampler,
                                      const std::function<std::string(const Sample&)>& config) {
  std::optional<std::uint64_t> given;
  throw_if_failed(state_->write([&]() -> Status {
    State& state = *state_;
    feed(sampler);
    const Result<std::uint64_t> worker = state.own_worker();
    if (!worker) return worker.error();
    given = state.waiting_trial();
    if (given) return state.put({.kind = ChangeKind::kStart, .trial = *given, .worker = *worker});
    const std::uint64_t next = state.records.trials().size() + 1;
    const auto lost = state.held.find(next);  // asked for before, and not stored
    const std::optional<Sample> sample =
        lost == state.held.end() ? sampler.ask() : Sample{.id = next, .values = lost->second};
    if (!sample) return {};
    state.held[sample->id] = sample->values;
    Change change{.kind = ChangeKind::kAsk,
                  .trial = sample->id,
                  .worker = *worker,
                  .numbers = sample->values,
                  .text_a = config ? config(*sample) : std::string()};
    DIVISI_TRY_STATUS(state.put(std::move(change)));
    state.unfed.pop_back();  // the sampler has it already
    given = sample->id;
    return {};
  }));
  return given ? trial(*given) : std::nullopt;
}

}  // namespace divisi::tune
