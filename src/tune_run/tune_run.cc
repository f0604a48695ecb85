#include "tune_run/tune_run.h"

#include "divisi/study.h"
#include "local_trials/local_trials.h"
#include "local_trials/process_tree.h"
#include "local_trials/trial_result.h"
#include "tune/expr_node.h"
#include "tune/numbers.h"
#include "tune_run/algorithms.h"
#include "tune_run/population.h"
#include "tune_run/pruners.h"
#include "tune_run/reports.h"
#include "tune_run/trial_command.h"
#include "tune_run/trial_folder.h"
#include "tune_run/value_json.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

namespace divisi::tune_run {
namespace {

using local_trials::Clock;
using local_trials::EndReason;
using local_trials::LocalTrials;
using local_trials::TrialEvent;
using tune::Study;
using tune::TrialState;

// A trial that is not at its end, with the try that runs or is next.
struct ActiveTrial {
  tune::TrialRecord record;
  tune::Record values;  // config, return value and metrics
  int tries = 0;
  TrialFolder folder{};
  local_trials::ResultPlaces places{};
  bool bad_report_noted = false;
  bool is_final = false;  // it failed in a way that another try does not change
  std::optional<double> last_report{};
};

tune::StudySpec spec_of(const StudyPlan& plan) {
  tune::StudySpec spec;
  spec.name = plan.name;
  spec.space = plan.space.text;
  spec.maximize.clear();
  for (const Target& target : plan.targets) {
    spec.maximize.push_back(target.maximize);
    spec.targets.push_back(target.value.text());
  }
  spec.algorithm = plan.algorithm.name;
  spec.options = json::print(plan.algorithm.options);
  return spec;
}

void remove_task(std::vector<std::uint64_t>& from, std::uint64_t task) {
  std::erase(from, task);
}

std::string exit_text(const io::ExitStatus& exit) {
  if (exit.signal != 0) return fmt::format("ended by {}", io::signal_name(exit.signal));
  return fmt::format("exit status {}", exit.code);
}

class StudyRun {
 public:
  StudyRun(const StudyPlan& plan, RunView& view, const Interrupts& interrupts, Study study,
           tune::Sampler sampler, TrialFolders folders, TrialCommands commands,
           std::unique_ptr<LocalTrials> trials, std::optional<tune::Pruner> pruner,
           std::optional<Population> population)
      : plan_(plan),
        view_(view),
        interrupts_(interrupts),
        study_(std::move(study)),
        sampler_(std::move(sampler)),
        folders_(std::move(folders)),
        commands_(std::move(commands)),
        trials_(std::move(trials)),
        pruner_(std::move(pruner)),
        population_(std::move(population)) {
    if (plan.timeout) deadline_ = Clock::now() + *plan.timeout;
    count_earlier_trials();
  }

  Result<RunOutcome> run() {
    try {
      return search();
    } catch (const Error& error) {  // of the study
      return abandon(make_status(error.code(), "{}", error.what()));
    }
  }

 private:
  Result<RunOutcome> search() {
    view_.show(outcome_.state);
    while (true) {
      if (Status status = fill_slots(); !status.ok()) return abandon(status);
      if (active_.empty()) break;
      view_.show(outcome_.state);
      const std::vector<TrialEvent> events = trials_->wait(next_wake(), interrupts_.descriptor);
      for (const TrialEvent& event : events) {
        if (Status status = handle(event); !status.ok()) return abandon(status);
      }
      handle_interrupts();
      meet_deadlines();
    }
    study_.sync();
    view_.close(outcome_.state);
    outcome_.data = read_study(study_);
    return std::move(outcome_);
  }

  void count_earlier_trials() {
    for (const tune::TrialRecord& trial : study_.trials()) {
      count(trial.stage);
      if (pruner_ && tune::is_finished(trial.stage)) show_pruner(trial);
    }
    outcome_.state.best = study_.best();
  }

  // What a trial of an earlier run reported: later ones are compared with it.
  void show_pruner(const tune::TrialRecord& trial) {
    for (const auto& [step, value] : trial.reports) pruner_->report(trial.id, step, value);
    const auto ended = static_cast<int>(trial.stage) - static_cast<int>(tune::TrialStage::kOk);
    pruner_->finish(trial.id, static_cast<TrialState>(ended));
  }

  void count(tune::TrialStage stage) {
    RunState& state = outcome_.state;
    state.trials_ok += stage == tune::TrialStage::kOk ? 1U : 0U;
    state.trials_failed +=
        stage == tune::TrialStage::kFail || stage == tune::TrialStage::kSkip ? 1U : 0U;
    state.trials_pruned += stage == tune::TrialStage::kPruned ? 1U : 0U;
  }

  // Nothing was started that is not ended and given back.
  Result<RunOutcome> abandon(const Status& status) {
    trials_.reset();  // first: what is given back may begin elsewhere at once
    for (const auto& [task, active] : active_) give_back(active);
    active_.clear();
    view_.close(outcome_.state);
    return failure(status);
  }

  void give_back(const ActiveTrial& active) {
    try {
      study_.give_back(active.record.id);
    } catch (const Error&) {
      // Whoever resumes finds that this process is gone.
    }
  }

  Status fill_slots() {
    while (trials_->has_room()) {
      ActiveTrial active;
      if (!retries_.empty()) {
        active = std::move(retries_.front());
        retries_.pop_front();
      } else {
        if (!open_ || exhausted_ || (deadline_ && Clock::now() >= *deadline_)) return {};
        std::optional<tune::TrialRecord> record = next_trial();
        if (!record) {
          // Members that run may go on.
          exhausted_ = !population_ || population_->done();
          return {};
        }
        active.record = *std::move(record);
        active.values.config = config_of(active.record);
      }
      DIVISI_TRY_STATUS(start(std::move(active)));
    }
    return {};
  }

  std::optional<tune::TrialRecord> next_trial() {
    if (population_) return population_->ask(study_);
    return study_.ask(sampler_, [this](const tune::Sample& sample) {
      return to_text(plan_.space.structure.config(sample.values));
    });
  }

  // Of its point where that gives what is stored: JSON does not tell 1.0 from 1.
  Value config_of(const tune::TrialRecord& record) const {
    if (record.raw.size() == plan_.space.names.size()) {
      Value drawn = plan_.space.structure.config(record.raw);
      if (population_ || to_text(drawn) == record.config) return drawn;
    }
    return from_text(record.config);
  }

  Status start(ActiveTrial active) {
    const Status status = try_to_start(active);
    if (!status.ok()) give_back(active);
    return status;
  }

  Status try_to_start(ActiveTrial& active) {
    Result<TrialFolder> folder = folders_.next();
    if (!folder) return folder.error();
    active.folder = *std::move(folder);
    ++active.tries;
    auto process = commands_.make(
        active.folder, active.record.id, active.values.config, active.record.attempt,
        population_ ? population_->prepare(active.record) : std::map<std::string, std::string>());
    if (!process) return process.error();
    active.places = commands_.places(active.folder);
    study_.begin_try(active.record.id, active.tries);
    const Result<pid_t> pid = trials_->start(*std::move(process));
    if (!pid) return pid.error().with_context(fmt::format("trial {}", active.record.id));
    const std::uint64_t task = active.folder.task;
    RunState& state = outcome_.state;
    state.defined.push_back(task);
    state.running.push_back(task);
    ++state.changes;
    active_.emplace(task, std::move(active));
    return {};
  }

  std::optional<Clock::time_point> next_wake() const {
    std::optional<Clock::time_point> next = view_.next_refresh();
    const auto earlier = [&](const std::optional<Clock::time_point>& other) {
      if (other && (!next || *other < *next)) next = other;
    };
    earlier(cancel_at_);
    return next;
  }

  Status handle(const TrialEvent& event) {
    const auto found = active_.find(event.task);
    if (found == active_.end()) return {};
    for (const std::string& line : event.reports) take_report(found->second, line);
    if (!event.ended) return {};
    ActiveTrial active = std::move(found->second);
    active_.erase(found);
    return finish_try(std::move(active), event);
  }

  void take_report(ActiveTrial& active, const std::string& line) {
    const Result<Report> report = parse_report(line, plan_.targets.front().value);
    if (!report) {
      if (!std::exchange(active.bad_report_noted, true)) {
        view_.note(fmt::format("trial {}: a report was ignored: {}", active.record.id,
                               report.error().message()));
      }
      return;
    }
    active.last_report = report->value;
    study_.report(active.record.id, report->step, report->value);
    if (!pruner_) return;
    pruner_->report(active.record.id, report->step, report->value);
    if (pruner_->should_prune(active.record.id)) {
      trials_->end(active.folder.task, EndReason::kPruned);
    }
  }

  Status finish_try(ActiveTrial active, const TrialEvent& event) {
    RunState& state = outcome_.state;
    remove_task(state.running, event.task);
    ++state.changes;
    if (event.reason == EndReason::kCancelled) {
      state.finished.push_back(event.task);
      state.abnormal.push_back(event.task);
      give_back(active);
      return {};
    }
    if (!event.log_problem.empty()) {
      view_.note(fmt::format("trial {}: its log {} is not complete: {}", active.record.id,
                             active.folder.path + "/log.txt", event.log_problem));
    }
    tune::Told told{.tries = active.tries};
    const bool stop = judge(active, event, told);
    if (pruner_) pruner_->finish(active.record.id, told.state);
    state.finished.push_back(event.task);
    list_of(told.state).push_back(event.task);
    const bool retry = told.state == TrialState::kFail && active.tries < plan_.tries && open_ &&
                       event.reason != EndReason::kTimeOut && !active.is_final;
    if (retry) {
      view_.note(fmt::format("trial {}: {}; trying again ({}/{})", active.record.id, told.error,
                             active.tries + 1, plan_.tries));
      retries_.push_back(std::move(active));
      return {};
    }
    return record_end(active, told, stop);
  }

  std::vector<std::uint64_t>& list_of(TrialState ended) {
    RunState& state = outcome_.state;
    if (ended == TrialState::kPruned) return state.pruned;
    return ended == TrialState::kOk ? state.success : state.abnormal;
  }

  // The end of the trial, with target and stop conditions. Whether the search should stop.
  bool judge(ActiveTrial& active, const TrialEvent& event, tune::Told& told) {
    const double seconds = std::chrono::duration<double>(event.duration).count();
    active.values.metrics =
        Value::Map{{"time", seconds},
                   {"run_time", seconds},
                   {"exit_code", event.exit.signal != 0 ? -event.exit.signal : event.exit.code},
                   {"attempt", active.record.attempt}};
    told.metrics = to_text(active.values.metrics);
    if (event.reason == EndReason::kPruned) {
      told.state = TrialState::kPruned;
      if (active.last_report) told.values = {*active.last_report};
      return false;
    }
    const Result<bool> stop = judge_result(active, event, told);
    if (stop) return *stop;
    told.state = TrialState::kFail;
    told.error = stop.error().message();
    told.values.clear();
    return false;
  }

  Result<bool> judge_result(ActiveTrial& active, const TrialEvent& event, tune::Told& told) {
    if (event.reason == EndReason::kTimeOut) {
      return failure(Code::kTimeout, "time out after {} s",
                     std::chrono::duration<double>(*plan_.trial_timeout).count());
    }
    if (plan_.require_exit_zero && !event.exit.ok()) {
      return failure(Code::kInternal, "{}; see {}/log.txt", exit_text(event.exit),
                     active.folder.path);
    }
    active.places.last_line = event.last_line;
    DIVISI_TRY(const local_trials::TrialResult result,
               local_trials::read_trial_result(active.places));
    active.values.returned = from_json(result.value);
    told.returned = to_text(active.values.returned);
    for (const Target& target : plan_.targets) {
      DIVISI_TRY(const Value value, value_in(target.value, active, result.place));
      DIVISI_TRY(const double number, number_of(target.value, value, active));
      told.values.push_back(number);
    }
    if (population_) {
      if (Status saved = population_->check_saved(active.record.id); !saved.ok()) {
        return failure(saved);
      }
    }
    told.state = TrialState::kOk;
    bool stop = false;
    for (const tune::Expr& condition : plan_.stop_when) {
      DIVISI_TRY(const Value met, value_in(condition, active, result.place));
      stop = tune::is_true(met) || stop;
    }
    return stop;
  }

  // Fails if the result has not the shape that the expression needs, which it will have no sooner
  // the next time.
  static Result<Value> value_in(const tune::Expr& expr, ActiveTrial& active,
                                const std::string& place) {
    Result<Value> value = tune::evaluate(expr, active.values);
    if (value) return value;
    active.is_final = true;
    const bool number = tune::as_number(active.values.returned).has_value();
    const char* const hint = number ? "; the number itself is R" : "";
    return failure(value.error().code(), "{}: {}{}", place, value.error().message(), hint);
  }

  static Result<double> number_of(const tune::Expr& expr, const Value& value, ActiveTrial& active) {
    const std::optional<double> number = tune::as_number(value);
    if (!number) {
      active.is_final = true;
      return failure(Code::kInvalid, "the target {} is {}, not a number", expr.text(),
                     value.describe());
    }
    if (!std::isfinite(*number)) {
      return failure(Code::kInvalid, "the target {} is {}", expr.text(), *number);
    }
    return *number;
  }

  Status record_end(const ActiveTrial& active, const tune::Told& told, bool stop) {
    study_.tell(active.record.id, told);
    if (population_) {
      const bool ok = told.state == TrialState::kOk;
      population_->ended(active.record.id, ok ? std::optional(told.values.front()) : std::nullopt);
    }
    const auto trial = study_.trial(active.record.id);
    if (!trial) return {Code::kInternal, "a trial that was told is not in its study"};
    RunState& state = outcome_.state;
    count(trial->stage);
    if (!told.error.empty())
      outcome_.last_error = fmt::format("trial {}: {}", trial->id, told.error);
    const std::uint64_t best_before = state.best ? state.best->id : 0;
    state.best = study_.best();
    const bool better = state.best && state.best->id != best_before;
    since_best_ = better ? 0 : since_best_ + 1;
    if (stop) {
      open_ = false;
      view_.note(fmt::format("trial {} meets the stop condition", trial->id));
    }
    if (plan_.no_improvement && since_best_ >= *plan_.no_improvement) open_ = false;
    view_.ended(*trial, state);
    count_failures(told.state);
    return {};
  }

  void count_failures(TrialState ended) {
    failures_in_row_ = ended == TrialState::kFail ? failures_in_row_ + 1 : 0;
    if (plan_.max_failures == 0 || failures_in_row_ < plan_.max_failures || !open_) return;
    open_ = false;
    view_.note(
        fmt::format("the last {} trials have failed: the search ends (--max-failures says "
                    "how many may in a row; 0: any number)",
                    failures_in_row_));
  }

  void handle_interrupts() {
    const int count = interrupts_.take();
    if (count == 0) return;
    const bool again = std::exchange(outcome_.interrupted, true);
    open_ = false;
    for (const ActiveTrial& waiting : retries_) give_back(waiting);
    retries_.clear();
    if (again || count > 1) {
      end_all(true);
      view_.note("interrupted twice: running trials are ended; --resume begins them again");
      return;
    }
    cancel_at_ = Clock::now() + plan_.grace;
    view_.note(
        fmt::format("interrupted: {} running trials have {} s to finish; again to end them now",
                    active_.size(), std::chrono::duration<double>(plan_.grace).count()));
  }

  void meet_deadlines() {
    if (!cancel_at_ || Clock::now() < *cancel_at_) return;
    cancel_at_.reset();
    end_all(false);
  }

  void end_all(bool now) {
    for (const auto& [task, active] : active_) trials_->end(task, EndReason::kCancelled, now);
  }

  const StudyPlan& plan_;
  RunView& view_;
  const Interrupts& interrupts_;
  Study study_;
  tune::Sampler sampler_;
  TrialFolders folders_;
  TrialCommands commands_;
  std::unique_ptr<LocalTrials> trials_;
  std::optional<tune::Pruner> pruner_;
  std::optional<Population> population_;  // of the algorithm pbt

  std::map<std::uint64_t, ActiveTrial> active_;  // by task
  std::deque<ActiveTrial> retries_;
  bool open_ = true;        // until a stop condition or an interrupt
  bool exhausted_ = false;  // the algorithm has no more trials
  std::int64_t since_best_ = 0;
  std::int64_t failures_in_row_ = 0;
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::time_point> cancel_at_;  // after an interrupt
  RunOutcome outcome_;
};

Result<RunOutcome> open_and_run(const StudyPlan& plan, RunView& view,
                                const Interrupts& interrupts) {
  DIVISI_TRY(tune::Sampler sampler, make_sampler(plan));
  DIVISI_TRY(TrialFolders folders, TrialFolders::open(plan.folder, plan.name));
  std::string warning;
  DIVISI_TRY(TrialCommands commands, TrialCommands::open(plan, folders.path(), warning));
  std::optional<tune::Pruner> pruner;
  if (plan.prune) {
    DIVISI_TRY(pruner, make_pruner(*plan.prune, plan.targets.front().maximize));
  }
  Study study = Study::open(
      plan.storage, spec_of(plan),
      {.resume = plan.resume,
       .allow_space_change = plan.allow_space_change,
       .words = {
           .resume = "--resume", .name = "--name NAME", .space_change = "--allow-space-change"}});
  std::optional<Population> population;
  if (plan.algorithm.name == kPopulationAlgorithm) {
    DIVISI_TRY(population, Population::open(plan, study, folders.path()));
  }
  DIVISI_TRY(std::unique_ptr<LocalTrials> trials,
             LocalTrials::open({.slots = plan.workers,
                                .grace = plan.grace,
                                .gpus = plan.gpus,
                                .gpus_per_trial = plan.gpus_per_trial}));
  if (!warning.empty()) view.note("warning: " + warning);
  const int leftovers = local_trials::end_leftovers("HPO_RESULT_FILE=" + folders.path() + "/");
  if (leftovers > 0) {
    view.note(fmt::format("ended {} processes that an earlier run left behind", leftovers));
  }
  StudyRun run(plan, view, interrupts, std::move(study), std::move(sampler), std::move(folders),
               std::move(commands), std::move(trials), std::move(pruner), std::move(population));
  return run.run();
}

}  // namespace

Result<RunOutcome> run_study(const StudyPlan& plan, RunView& view, const Interrupts& interrupts) {
  try {
    return open_and_run(plan, view, interrupts);
  } catch (const Error& error) {
    return failure(error.code(), "{}", error.what());
  }
}

Result<std::vector<std::string>> dry_run(const StudyPlan& plan, int count) {
  DIVISI_TRY(tune::Sampler sampler, make_sampler(plan));
  std::string warning;
  StudyPlan quiet = plan;
  quiet.missing = Missing::kOk;
  DIVISI_TRY(const TrialCommands commands, TrialCommands::open(quiet, plan.folder, warning));
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    const std::optional<tune::Sample> sample = sampler.ask();
    if (!sample) break;
    const TrialFolder folder{static_cast<std::uint64_t>(i), fmt::format("{}-{}", plan.name, i),
                             fmt::format("{}/{}-{}-log", plan.folder, plan.name, i)};
    const Value config = plan.space.structure.config(sample->values);
    std::vector<std::string> words;
    if (plan.inject == Inject::kEnv) {
      words.emplace_back("env");
      for (const auto& [name, value] : as_environment(config)) words.push_back(name + "=" + value);
    }
    for (std::string& word : commands.command(folder, config)) words.push_back(std::move(word));
    const bool hidden = plan.inject == Inject::kJson || plan.inject == Inject::kYaml ||
                        plan.inject == Inject::kPython;
    lines.push_back(hidden ? fmt::format("{}    # {}", shell_line(words), to_text(config))
                           : shell_line(words));
  }
  return lines;
}

}  // namespace divisi::tune_run
