// The public Study, but for ask() (src/tune/study_ask.cc); failures become exceptions here.
#include "study/study_spec.h"
#include "study/study_state.h"

#include <algorithm>

namespace divisi::tune {
namespace {

std::string names_of(const std::vector<Log::Entry>& entries) {
  std::string names;
  for (const Log::Entry& entry : entries) {
    names += (names.empty() ? "'" : ", '") + entry.spec.name + "'";
  }
  return names.empty() ? "none" : names;
}

Result<Log::Entry> entry_named(Log& log, const std::string& url, const std::string& name) {
  DIVISI_TRY(std::vector<Log::Entry> entries, log.studies());
  if (name.empty() && entries.size() == 1) return std::move(entries.front());
  for (Log::Entry& entry : entries) {
    if (entry.spec.name == name) return std::move(entry);
  }
  if (name.empty()) {
    return failure(Code::kNotFound, "which study of {}? Its studies: {}", url, names_of(entries));
  }
  return failure(Code::kNotFound, "there is no study '{}' in {}; its studies: {}", name, url,
                 names_of(entries));
}

Result<Records> records_of(Log& log, const Log::Entry& entry) {
  Records records(entry.spec.space);
  const Status read =
      log.read(entry.id, 0, [&](const Change& change) { return records.apply(change); });
  if (!read.ok()) return failure(read);
  return records;
}

// Whether a search may go on with a study: spaces and directions.
Status check_fits(const StudySpec& stored, const std::string& stored_space, const StudySpec& given,
                  const StudyOptions& options) {
  if (stored.maximize != given.maximize) {
    return make_status(
        Code::kInvalid,
        "the study '{}' has other directions ({} targets; the first is {}): give another name ({})",
        stored.name, stored.maximize.size(),
        !stored.maximize.empty() && stored.maximize.front() ? "maximized" : "minimized",
        options.words.name);
  }
  if (options.allow_space_change) return {};
  const std::string difference = space_difference(stored_space, given.space);
  if (difference.empty()) return {};
  return make_status(Code::kInvalid,
                     "the study '{}' searched other spaces: {}; give another name ({}), or go on "
                     "with the new ones ({})",
                     stored.name, difference, options.words.name, options.words.space_change);
}

Status check_spec(const StudySpec& spec) {
  if (spec.name.empty()) return make_status(Code::kInvalid, "a study needs a name");
  if (spec.maximize.empty()) {
    return make_status(Code::kInvalid, "the study '{}' has nothing to optimize", spec.name);
  }
  const Result<json::Value> storable = spec_to_json(spec);
  return storable ? Status() : storable.error();
}

// Under the lock of the log: the study of the spec, found or made.
Result<Log::Entry> found_or_made(Log& log, const std::string& url, const StudySpec& spec,
                                 const StudyOptions& options) {
  DIVISI_TRY(std::vector<Log::Entry> entries, log.studies());
  for (Log::Entry& entry : entries) {
    if (entry.spec.name != spec.name) continue;
    DIVISI_TRY(const Records records, records_of(log, entry));
    if (!options.resume) {
      return failure(Code::kAlreadyExists,
                     "the study '{}' exists in {}, with {} trials: go on with it ({}), or give "
                     "another name ({})",
                     spec.name, url, records.trials().size(), options.words.resume,
                     options.words.name);
    }
    Status fits = check_fits(entry.spec, records.spaces().back(), spec, options);
    if (!fits.ok()) return failure(std::move(fits));
    if (!space_difference(records.spaces().back(), spec.space).empty()) {
      Change change{.kind = ChangeKind::kSpace, .time = wall_clock(), .text_a = spec.space};
      if (Status put = log.append(entry.id, change); !put.ok()) return failure(std::move(put));
    }
    return std::move(entry);
  }
  DIVISI_TRY(const std::uint64_t id, log.add_study(spec));
  return Log::Entry{.id = id, .spec = spec};
}

StudySummary summary_of(const StudySpec& spec, const Records& records) {
  StudySummary summary{.spec = spec};
  for (const TrialRecord& trial : records.trials()) {
    if (is_finished(trial.stage)) ++summary.finished;
    if (trial.stage == TrialStage::kOk) ++summary.ok;
    if (trial.stage == TrialStage::kRunning) ++summary.running;
    if (trial.stage == TrialStage::kWaiting) ++summary.waiting;
  }
  return summary;
}

template <class T>
T taken_or_thrown(Result<T> result) {
  if (!result) throw_if_failed(result.error());
  return *std::move(result);
}

bool works_now(const Records& records) {
  const double now = wall_clock();
  return std::any_of(records.workers().begin(), records.workers().end(), [&](const auto& one) {
    return !one.second.left && one.second.identity.lives(one.second.seen, now);
  });
}

}  // namespace

Study::Study(std::unique_ptr<State> state) : state_(std::move(state)) {}
Study::Study(Study&&) noexcept = default;
Study& Study::operator=(Study&&) noexcept = default;
Study::~Study() = default;

Study Study::open(const std::string& url, StudySpec spec, const StudyOptions& options) {
  throw_if_failed(check_spec(spec));
  if (spec.created == 0) spec.created = wall_clock();
  auto log = taken_or_thrown(open_log(url, Access::kWrite, options.fsync));
  throw_if_failed(log->lock());
  Result<Log::Entry> entry = found_or_made(*log, url, spec, options);
  if (!entry) {
    log->abandon();
    throw_if_failed(entry.error());
  }
  throw_if_failed(log->commit());
  auto state =
      std::make_unique<State>(url, Access::kWrite, options, std::move(log), *std::move(entry));
  throw_if_failed(state->refresh());
  return Study(std::move(state));
}

Study Study::load(const std::string& url, const std::string& name) {
  auto log = taken_or_thrown(open_log(url, Access::kRead, Fsync::kSecond));
  Log::Entry entry = taken_or_thrown(entry_named(*log, url, name));
  auto state =
      std::make_unique<State>(url, Access::kRead, StudyOptions{}, std::move(log), std::move(entry));
  throw_if_failed(state->refresh());
  return Study(std::move(state));
}

std::vector<StudySummary> Study::list(const std::string& url) {
  const auto log = taken_or_thrown(open_log(url, Access::kRead, Fsync::kSecond));
  std::vector<StudySummary> summaries;
  for (const Log::Entry& entry : taken_or_thrown(log->studies())) {
    const Records records = taken_or_thrown(records_of(*log, entry));
    summaries.push_back(summary_of(entry.spec, records));
    summaries.back().spec.space = records.spaces().back();
  }
  return summaries;
}

void Study::remove(const std::string& url, const std::string& name) {
  {
    // A file that is not there is not made.
    const auto there = taken_or_thrown(open_log(url, Access::kRead, Fsync::kSecond));
    taken_or_thrown(entry_named(*there, url, name));
  }
  const auto log = taken_or_thrown(open_log(url, Access::kWrite, Fsync::kSecond));
  throw_if_failed(log->lock());
  const auto remove_it = [&]() -> Status {
    const Result<Log::Entry> entry = entry_named(*log, url, name);
    if (!entry) return entry.error();
    const Result<Records> records = records_of(*log, *entry);
    if (!records) return records.error();
    if (works_now(*records)) {
      return make_status(Code::kInvalid, "somebody works on the study '{}': end that first",
                         entry->spec.name);
    }
    return log->remove_study(entry->id);
  };
  if (const Status removed = remove_it(); !removed.ok()) {
    log->abandon();
    throw_if_failed(removed);
  }
  throw_if_failed(log->commit());
}

StudySpec Study::spec() const {
  const std::lock_guard lock(state_->mutex);
  return state_->spec;
}

const std::string& Study::url() const noexcept {
  return state_->url;
}

void Study::begin_try(std::uint64_t id, int number) {
  throw_if_failed(state_->write(
      [&] { return state_->put_of_running(ChangeKind::kTry, id, {.count = number}); }));
}

void Study::report(std::uint64_t id, std::int64_t step, double value) {
  throw_if_failed(state_->write([&] {
    return state_->put_of_running(ChangeKind::kReport, id,
                                  {.numbers = {static_cast<double>(step), value}});
  }));
}

void Study::tell(std::uint64_t id, const Told& told) {
  throw_if_failed(state_->write([&] {
    return state_->put_of_running(ChangeKind::kTell, id,
                                  {.state = told.state,
                                   .count = told.tries,
                                   .numbers = told.values,
                                   .violation = told.violation,
                                   .text_a = told.returned,
                                   .text_b = told.metrics,
                                   .text_c = told.error});
  }));
}

void Study::give_back(std::uint64_t id) {
  throw_if_failed(
      state_->write([&] { return state_->put_of_running(ChangeKind::kGiveBack, id, {}); }));
}

std::vector<std::uint64_t> Study::add(const std::vector<GivenTrial>& trials) {
  std::vector<std::uint64_t> ids;
  for (const GivenTrial& trial : trials) {
    if (!trial.config.empty()) {
      taken_or_thrown(json_of(trial.config, "the configuration of a trial"));
    }
    if (!trial.told) continue;
    if (!trial.told->returned.empty()) {
      taken_or_thrown(json_of(trial.told->returned, "the return value of a trial"));
    }
    if (!trial.told->metrics.empty()) {
      taken_or_thrown(json_of(trial.told->metrics, "the metrics of a trial"));
    }
  }
  throw_if_failed(state_->write([&]() -> Status {
    ids.clear();
    for (const GivenTrial& trial : trials) {
      const std::uint64_t id = state_->records.trials().size() + 1;
      DIVISI_TRY_STATUS(state_->put(
          {.kind = ChangeKind::kAdd, .trial = id, .numbers = trial.raw, .text_a = trial.config}));
      ids.push_back(id);
      if (!trial.told) continue;
      const Told& told = *trial.told;
      DIVISI_TRY_STATUS(state_->put({.kind = ChangeKind::kTell,
                                     .trial = id,
                                     .state = told.state,
                                     .count = told.tries,
                                     .numbers = told.values,
                                     .violation = told.violation,
                                     .text_a = told.returned,
                                     .text_b = told.metrics,
                                     .text_c = told.error}));
    }
    return {};
  }));
  return ids;
}

std::uint64_t Study::refresh() {
  throw_if_failed(state_->refresh());
  const std::lock_guard lock(state_->mutex);
  return state_->records.last_change();
}

std::vector<TrialRecord> Study::trials() const {
  const std::lock_guard lock(state_->mutex);
  return state_->records.trials();
}

std::vector<TrialRecord> Study::trials_since(std::uint64_t change) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<TrialRecord> changed;
  for (const TrialRecord& trial : state_->records.trials()) {
    if (trial.changed > change) changed.push_back(trial);
  }
  return changed;
}

std::optional<TrialRecord> Study::trial(std::uint64_t id) const {
  const std::lock_guard lock(state_->mutex);
  const TrialRecord* found = state_->records.find(id);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::size_t Study::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->records.trials().size();
}

std::optional<TrialRecord> Study::best() const {
  const std::lock_guard lock(state_->mutex);
  const std::vector<bool>& maximized = state_->spec.maximize;
  const TrialRecord* best = state_->records.best(!maximized.empty() && maximized.front());
  return best == nullptr ? std::nullopt : std::optional(*best);
}

std::vector<WorkerRecord> Study::workers() const {
  const std::lock_guard lock(state_->mutex);
  const double now = wall_clock();
  std::vector<WorkerRecord> workers;
  for (const auto& [id, one] : state_->records.workers()) {
    workers.push_back({.id = id,
                       .host = one.identity.host,
                       .process = one.identity.process,
                       .joined = one.joined,
                       .seen = one.seen,
                       .left = one.left,
                       .alive = !one.left && one.identity.lives(one.seen, now)});
  }
  return workers;
}

std::uint64_t Study::worker() const {
  const std::lock_guard lock(state_->mutex);
  return state_->worker;
}

void Study::sync() {
  Log* log = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    log = state_->log.get();
  }
  ++state_->syncs;
  throw_if_failed(log->sync());
}

std::pair<std::uint64_t, std::uint64_t> Study::syncs_and_commits() const {
  return {state_->syncs, state_->commits};
}

}  // namespace divisi::tune
