#include "tune_run/population.h"

#include "tune_run/option_reader.h"
#include "tune_run/value_json.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

namespace divisi::tune_run {
namespace {

namespace fs = std::filesystem;

std::optional<tune::PbtSegment> segment_of(const tune::TrialRecord& record) {
  const Result<json::Value> config = json::parse(record.config);
  if (!config) return std::nullopt;
  const auto number = [&](std::string_view name) { return config->int_at({kSegmentKey, name}); };
  const auto member = number("member");
  const auto generation = number("generation");
  const auto parent = number("parent");
  if (!member || !generation || !parent || *parent < 0) return std::nullopt;
  return tune::PbtSegment{.id = record.id,
                          .member = *member,
                          .generation = *generation,
                          .values = record.raw,
                          .parent = static_cast<std::uint64_t>(*parent)};
}

Result<std::vector<tune::PbtPast>> past_of(const tune::Study& study) {
  std::vector<tune::PbtPast> past;
  for (const tune::TrialRecord& record : study.trials()) {
    auto segment = segment_of(record);
    if (!segment) {
      return failure(Code::kInvalid,
                     "algorithm pbt: trial {} of the study {} is no segment of a population: use "
                     "another name",
                     record.id, study.spec().name);
    }
    tune::PbtPast one{.segment = *std::move(segment), .ended = tune::is_finished(record.stage)};
    if (record.stage == tune::TrialStage::kOk && !record.values.empty()) {
      one.value = record.values.front();
    }
    past.push_back(std::move(one));
  }
  return past;
}

Status check_alone(const tune::Study& study) {
  for (const tune::WorkerRecord& worker : study.workers()) {
    if (!worker.alive || worker.left || worker.id == study.worker()) continue;
    return make_status(Code::kConflict,
                       "algorithm pbt: process {} on {} works on the study {}: one at a time can",
                       worker.process, worker.host, study.spec().name);
  }
  return {};
}

}  // namespace

Result<tune::PbtOptions> read_population_options(const StudyPlan& plan) {
  tune::PbtOptions options;
  OptionReader read("algorithm pbt", plan.algorithm.options);
  read.seed("seed", options.seed);
  read.whole("population", options.population);
  read.whole("generations", options.generations);
  read.number("quantile", options.quantile);
  read.number("resample", options.resample);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  if (plan.max_steps) {
    return failure(Code::kInvalid,
                   "algorithm pbt runs population x generations trials: set those, not max_steps");
  }
  options.maximize = plan.targets.front().maximize;
  return options;
}

Population::Population(const StudyPlan& plan, tune::Pbt pbt, std::string folder)
    : plan_(&plan),
      pbt_(std::move(pbt)),
      nothing_(tune::Sampler::random(plan.space.spaces(), {.max_steps = 0})),
      folder_(std::move(folder)) {}

Result<Population> Population::open(const StudyPlan& plan, const tune::Study& study,
                                    const std::string& folder) {
  DIVISI_TRY(const tune::PbtOptions options, read_population_options(plan));
  if (Status status = check_alone(study); !status.ok()) return failure(status);
  DIVISI_TRY(const std::vector<tune::PbtPast> past, past_of(study));
  Population made(plan, tune::Pbt(plan.space.spaces(), options), folder + "/checkpoints");
  made.pbt_.adopt(past);
  std::error_code error;
  fs::create_directories(made.folder_, error);
  if (error) return failure(Code::kUnavailable, "making {}: {}", made.folder_, error.message());
  for (const std::uint64_t id : made.pbt_.needed()) {
    if (fs::exists(made.path_of(id), error)) continue;
    return failure(Code::kNotFound,
                   "algorithm pbt: the checkpoint {} is gone, so the population cannot go on: put "
                   "it back, or begin a study of another name",
                   made.path_of(id));
  }
  return made;
}

std::optional<tune::TrialRecord> Population::ask(tune::Study& study) {
  auto record = study.ask(nothing_);
  if (!record) {
    const std::optional<tune::PbtSegment> segment = pbt_.ask();
    if (!segment) return std::nullopt;
    Value config = plan_->space.structure.config(segment->values);
    json::Value stored = to_json(config);
    stored[kSegmentKey]["member"] = segment->member;
    stored[kSegmentKey]["generation"] = segment->generation;
    stored[kSegmentKey]["parent"] = static_cast<std::int64_t>(segment->parent);
    const auto ids = study.add({{.raw = segment->values, .config = json::print(stored)}});
    record = study.ask(nothing_);
    if (ids.front() != segment->id || !record || record->id != segment->id) {
      throw UsageError(
          "algorithm pbt: somebody else made trials of this study: one process at a "
          "time can work on it");
    }
  }
  running_[record->id] = segment_of(*record).value_or(tune::PbtSegment{}).parent;
  return record;
}

std::map<std::string, std::string> Population::prepare(const tune::TrialRecord& record) const {
  const tune::PbtSegment segment = segment_of(record).value_or(tune::PbtSegment{});
  std::error_code none;
  fs::remove_all(path_of(record.id), none);
  std::map<std::string, std::string> environment{
      {"HPO_CHECKPOINT_SAVE", path_of(record.id)},
      {"HPO_MEMBER", std::to_string(segment.member)},
      {"HPO_GENERATION", std::to_string(segment.generation)}};
  if (segment.parent != 0) environment["HPO_CHECKPOINT_LOAD"] = path_of(segment.parent);
  return environment;
}

Status Population::check_saved(std::uint64_t id) const {
  std::error_code none;
  if (fs::exists(path_of(id), none)) return {};
  return make_status(Code::kNotFound,
                     "it saved no checkpoint: the program must write $HPO_CHECKPOINT_SAVE ({})",
                     path_of(id));
}

void Population::ended(std::uint64_t id, std::optional<double> value) {
  pbt_.tell(id, value.value_or(std::numeric_limits<double>::quiet_NaN()));
  running_.erase(id);
  std::set<std::uint64_t> needed;
  for (const std::uint64_t one : pbt_.needed()) needed.insert(one);
  for (const auto& [running, loads] : running_) needed.insert({running, loads});
  std::error_code none;
  std::vector<fs::path> unneeded;
  for (fs::directory_iterator entry(folder_, none), end; !none && entry != end;
       entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    std::uint64_t number = 0;
    const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool ours = error == std::errc() && last == name.data() + name.size();
    if (ours && !needed.contains(number)) unneeded.push_back(entry->path());
  }
  for (const fs::path& path : unneeded) fs::remove_all(path, none);
}

}  // namespace divisi::tune_run
