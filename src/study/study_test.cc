// One suite for every place where a study can live, and what is particular to each.
#include "divisi/study.h"

#include "divisi/error.h"
#include "study/file_system.h"
#include "study/journal_line.h"
#include "study/log.h"
#include "study/study_spec.h"
#include "study/worker_identity.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {
std::atomic<bool> disk_is_broken = false;
std::function<void()> before_it_breaks;
}  // namespace

// In place of the system's, also for SQLite.
extern "C" __attribute__((visibility("default"))) int fdatasync(int file) {
  if (!disk_is_broken) return static_cast<int>(::syscall(SYS_fdatasync, file));
  if (before_it_breaks) before_it_breaks();
  errno = EIO;
  return -1;
}

namespace divisi::tune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "divisi_study_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

const std::vector<Space> kSpaces{Space::continuous(0, 1), Space::separate(0, 10, 1)};

StudySpec spec_named(const std::string& name) {
  return {.name = name,
          .space = space_text({"x", "n"}, kSpaces),
          .maximize = {true},
          .targets = {"R"},
          .algorithm = "random",
          .options = R"({"seed":7})"};
}

Sampler random_sampler(std::int64_t steps) {
  return Sampler::random(kSpaces, {.max_steps = steps, .words = python_random(std::uint64_t{7})});
}

std::string config_of(const Sample& sample) {
  return fmt::format("{{\"x\":{},\"n\":{}}}", sample.values[0], sample.values[1]);
}

Told told_of(const TrialRecord& trial) {
  return {.values = {trial.raw[0] + trial.raw[1]},
          .returned = "[1,\"a\"]",
          .metrics = R"({"time":0.5})"};
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// --- every place ---

class StudyPlaceTest : public testing::TestWithParam<const char*> {
 protected:
  std::string url() const {
    const std::string kind = GetParam();
    if (kind == "memory") return "memory:";
    return kind == "journal" ? "file:" + (folder_ / "s.jsonl") : "sqlite:" + (folder_ / "s.db");
  }
  bool lasts() const { return std::string(GetParam()) != "memory"; }

  Folder folder_;
};

TEST_P(StudyPlaceTest, AskAndTellUntilTheSearchEnds) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(5);
  std::vector<std::uint64_t> ids;
  while (const std::optional<TrialRecord> trial = study.ask(sampler, config_of)) {
    ids.push_back(trial->id);
    EXPECT_EQ(trial->stage, TrialStage::kRunning);
    EXPECT_EQ(trial->attempt, 1);
    EXPECT_EQ(trial->config, config_of({.id = trial->id, .values = trial->raw}));
    study.tell(trial->id, told_of(*trial));
  }
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4, 5));
  ASSERT_EQ(study.size(), 5U);
  for (const TrialRecord& trial : study.trials()) {
    EXPECT_EQ(trial.stage, TrialStage::kOk);
    EXPECT_THAT(trial.values, ElementsAre(trial.raw[0] + trial.raw[1]));
    EXPECT_EQ(trial.returned, "[1,\"a\"]");
    EXPECT_EQ(trial.metrics, R"({"time":0.5})");
    EXPECT_GE(trial.ended, trial.started);
    EXPECT_LE(trial.values[0], study.best()->values[0]);
  }
}

TEST_P(StudyPlaceTest, EveryWayToEndIsKept) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(4);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  study.tell(study.ask(sampler)->id, {.values = {nan}});
  study.tell(study.ask(sampler)->id,
             {.state = TrialState::kFail, .error = "first \"line\"\nsecond", .tries = 3});
  study.tell(study.ask(sampler)->id, {.state = TrialState::kSkip, .error = "not now"});
  const std::uint64_t last = study.ask(sampler)->id;
  study.report(last, 10, 0.25);
  study.report(last, 20, -inf);
  study.tell(last, {.state = TrialState::kPruned, .values = {inf}, .violation = 2});
  const auto check = [&](const Study& one) {
    EXPECT_TRUE(std::isnan(one.trial(1)->values.at(0)));
    EXPECT_EQ(one.trial(2)->stage, TrialStage::kFail);
    EXPECT_EQ(one.trial(2)->error, "first \"line\"\nsecond");
    EXPECT_EQ(one.trial(2)->tries, 3);
    EXPECT_EQ(one.trial(3)->stage, TrialStage::kSkip);
    EXPECT_THAT(one.trial(4)->reports,
                ElementsAre(testing::Pair(10, 0.25), testing::Pair(20, -inf)));
    EXPECT_EQ(one.trial(4)->values.at(0), inf);
    EXPECT_EQ(one.trial(4)->violation, 2);
    EXPECT_EQ(one.best()->id, 1U);
  };
  check(study);
  if (lasts()) check(Study::load(url()));
}

TEST_P(StudyPlaceTest, WhatDoesNotRunHereCannotBeTold) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(3);
  EXPECT_THAT(message_of([&] { study.tell(1, {.values = {1}}); }), HasSubstr("no trial 1"));
  const std::uint64_t id = study.ask(sampler)->id;
  study.tell(id, {.values = {1}});
  EXPECT_THAT(message_of([&] { study.tell(id, {.values = {2}}); }),
              HasSubstr("has its result already"));
  EXPECT_THAT(message_of([&] { study.report(id, 1, 1); }), HasSubstr("has its result already"));
  EXPECT_EQ(study.trial(id)->values.at(0), 1);
  EXPECT_EQ(study.ask(sampler)->id, 2U);
}

TEST_P(StudyPlaceTest, PointsOfTheUserComeFirstAndCount) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(4);
  EXPECT_THAT(study.add({{.raw = {0.5, 3}, .config = "{\"x\":0.5}"},
                         {.raw = {0.25, 4}, .told = Told{.values = {7}, .tries = 0}}}),
              ElementsAre(1, 2));
  const TrialRecord first = study.ask(sampler).value();
  EXPECT_EQ(first.id, 1U);
  EXPECT_EQ(first.origin, Origin::kUser);
  EXPECT_THAT(first.raw, ElementsAre(0.5, 3.0));
  EXPECT_EQ(study.trial(2)->stage, TrialStage::kOk);
  EXPECT_EQ(study.best()->id, 2U);
  EXPECT_EQ(study.ask(sampler)->id, 3U);
  EXPECT_EQ(study.ask(sampler)->id, 4U);
  EXPECT_FALSE(study.ask(sampler));  // four steps: two of the user, two of the search
}

// The first of the best by (violation, whether it is NaN, value), looking at all of them.
std::uint64_t slow_best(const std::vector<TrialRecord>& trials, bool maximize) {
  const TrialRecord* best = nullptr;
  const auto is_better = [&](const TrialRecord& a, const TrialRecord& b) {
    if (a.violation != b.violation) return a.violation < b.violation;
    const double x = a.values.at(0);
    const double y = b.values.at(0);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return maximize ? x > y : x < y;
  };
  for (const TrialRecord& trial : trials) {
    if (trial.stage != TrialStage::kOk) continue;
    if (best == nullptr || is_better(trial, *best)) best = &trial;
  }
  return best == nullptr ? 0 : best->id;
}

TEST_P(StudyPlaceTest, BestIsKnownAfterEveryEnd) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Told> ends{{.state = TrialState::kFail},
                               {.values = {nan}},
                               {.values = {5}, .violation = 2},
                               {.values = {7}, .violation = 1},
                               {.values = {3}},
                               {.values = {4}},
                               {.state = TrialState::kPruned, .values = {1}},
                               {.values = {3}},
                               {.values = {2}},
                               {.values = {4}},
                               {.values = {9}, .violation = 0.5},
                               {.values = {-inf}},
                               {.values = {inf}}};
  for (const bool maximize : {false, true}) {
    StudySpec spec = spec_named(maximize ? "max" : "min");
    spec.maximize = {maximize};
    Study study = Study::open(url(), spec);
    Sampler sampler = random_sampler(static_cast<std::int64_t>(ends.size()));
    std::vector<std::uint64_t> ids;  // asked for together, so that they end in another order
    for (std::size_t i = 0; i < ends.size(); ++i) ids.push_back(study.ask(sampler)->id);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      // 5 shares no factor with 13: each of them once.
      const std::size_t at = i * 5 % ends.size();
      study.tell(ids[at], ends[at]);
      const auto best = study.best();
      EXPECT_EQ(best ? best->id : 0, slow_best(study.trials(), maximize)) << "after " << ids[at];
    }
  }
}

TEST_P(StudyPlaceTest, WhatIsGivenBackIsGivenAgain) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(2);
  const TrialRecord first = study.ask(sampler).value();
  study.report(first.id, 1, 0.5);
  study.give_back(first.id);
  EXPECT_THAT(message_of([&] { study.tell(first.id, {.values = {1}}); }), HasSubstr("waiting"));
  const TrialRecord again = study.ask(sampler).value();
  EXPECT_EQ(again.id, first.id);
  EXPECT_EQ(again.raw, first.raw);
  EXPECT_EQ(again.attempt, 2);
  EXPECT_TRUE(again.reports.empty());
}

TEST_P(StudyPlaceTest, ManyThreadsWorkOnOneStudy) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(200);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        while (const std::optional<TrialRecord> trial = study.ask(sampler, config_of)) {
          study.report(trial->id, 1, 0.5);
          study.tell(trial->id, told_of(*trial));
        }
      });
    }
  }
  EXPECT_EQ(study.size(), 200U);
  for (const TrialRecord& trial : study.trials()) {
    EXPECT_EQ(trial.stage, TrialStage::kOk);
    EXPECT_EQ(trial.attempt, 1);
    EXPECT_EQ(trial.reports.size(), 1U);
  }
  EXPECT_LE(study.syncs_and_commits().second, 601U);
}

TEST_P(StudyPlaceTest, ATrialWithoutAConfigurationIsAskedForAgain) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(2);
  const auto broken = [](const Sample&) -> std::string { throw UsageError("no configuration"); };
  EXPECT_EQ(message_of([&] { study.ask(sampler, broken); }), "no configuration");
  EXPECT_EQ(study.ask(sampler, config_of)->id, 1U);
  EXPECT_EQ(study.ask(sampler, config_of)->id, 2U);
  EXPECT_FALSE(study.ask(sampler, config_of));
}

TEST_P(StudyPlaceTest, TrialsThatDoNotFitEndNoSearch) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = Sampler::tpe(kSpaces, {.max_steps = 5, .seed = 1});
  study.add({{.raw = {0.5}, .told = Told{.values = {1}}},
             {.raw = {0.5, 1}, .told = Told{.values = {1, 2}}},
             {.raw = {0.5, 1}, .told = Told{.values = {1}}}});
  EXPECT_EQ(study.ask(sampler)->id, 4U);
}

INSTANTIATE_TEST_SUITE_P(Places, StudyPlaceTest, testing::Values("memory", "journal", "sqlite"),
                         [](const auto& about) { return std::string(about.param); });

// --- places that last ---

class StudyFileTest : public StudyPlaceTest {};

// The values of each trial of a search that is never interrupted.
std::vector<std::vector<double>> uninterrupted(std::int64_t steps) {
  Sampler sampler = random_sampler(steps);
  std::vector<std::vector<double>> points;
  while (const std::optional<Sample> sample = sampler.ask()) {
    points.push_back(sample->values);
    sampler.tell(sample->id, TrialState::kOk, 0);
  }
  return points;
}

std::vector<std::vector<double>> points_of(const Study& study) {
  std::vector<std::vector<double>> points;
  for (const TrialRecord& trial : study.trials()) points.push_back(trial.raw);
  return points;
}

TEST_P(StudyFileTest, AStudyGoesOnInAnotherObject) {
  for (int part = 0; part < 4; ++part) {
    Study study = Study::open(url(), spec_named("a"), {.resume = true});
    Sampler sampler = random_sampler(10);
    for (int i = 0; i < 3; ++i) {
      const std::optional<TrialRecord> trial = study.ask(sampler, config_of);
      if (!trial) break;
      if (i < 2) study.tell(trial->id, told_of(*trial));  // the third one is left behind
    }
  }
  Study study = Study::open(url(), spec_named("a"), {.resume = true});
  Sampler sampler = random_sampler(10);
  while (const std::optional<TrialRecord> trial = study.ask(sampler)) {
    study.tell(trial->id, told_of(*trial));
  }
  EXPECT_EQ(points_of(study), uninterrupted(10));
  EXPECT_EQ(study.trial(3)->attempt, 2);
  EXPECT_EQ(study.trial(1)->attempt, 1);
}

TEST_P(StudyFileTest, AnExistingStudyIsNotOverwritten) {
  {
    const Study first = Study::open(url(), spec_named("a"));
  }
  EXPECT_THAT(message_of([&] { Study::open(url(), spec_named("a")); }),
              HasSubstr("the study 'a' exists in"));
  const Study other = Study::open(url(), spec_named("b"));
  EXPECT_EQ(Study::list(url()).size(), 2U);
}

TEST_P(StudyFileTest, StudiesOfOneFileAreApart) {
  Study a = Study::open(url(), spec_named("a"));
  Study b = Study::open(url(), spec_named("b"));
  Sampler for_a = random_sampler(3);
  Sampler for_b = random_sampler(3);
  for (int i = 0; i < 3; ++i) {
    a.tell(a.ask(for_a)->id, {.values = {1}});
    b.tell(b.ask(for_b)->id, {.state = TrialState::kFail});
  }
  const std::vector<StudySummary> list = Study::list(url());
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].spec.name, "a");
  EXPECT_EQ(list[0].ok, 3U);
  EXPECT_EQ(list[1].finished, 3U);
  EXPECT_EQ(list[1].ok, 0U);
  EXPECT_EQ(list[1].spec.targets, std::vector<std::string>{"R"});
  EXPECT_EQ(list[1].spec.options, R"({"seed":7})");
}

TEST_P(StudyFileTest, ARemovedStudyIsGoneAndItsNameIsFree) {
  {
    Study study = Study::open(url(), spec_named("a"));
    Sampler sampler = random_sampler(3);
    study.tell(study.ask(sampler)->id, {.values = {1}});
    EXPECT_THAT(message_of([&] { Study::remove(url(), "a"); }), HasSubstr("somebody works"));
  }
  Study::remove(url(), "a");
  EXPECT_THAT(message_of([&] { Study::remove(url(), "a"); }), HasSubstr("no study 'a'"));
  EXPECT_EQ(Study::open(url(), spec_named("a")).size(), 0U);
}

TEST_P(StudyFileTest, NothingIsAddedToAStudyThatWasRemoved) {
  Study study = Study::open(url(), spec_named("a"));
  Study::remove(url(), "a");
  Sampler sampler = random_sampler(3);
  EXPECT_THAT(message_of([&] { study.ask(sampler); }), HasSubstr("removed the study"));
  EXPECT_THAT(message_of([&] { study.add({{.raw = {0.5, 1}}}); }), HasSubstr("removed the study"));
}

TEST_P(StudyFileTest, AViolationThatIsNoNumberIsTheWorst) {
  {
    Study study = Study::open(url(), spec_named("a"));
    study.add({{.raw = {0.5, 1}, .told = Told{.values = {9}, .violation = std::nan("")}},
               {.raw = {0.5, 1}, .told = Told{.values = {1}, .violation = 3}}});
    EXPECT_EQ(study.best()->id, 2U);
  }
  const Study study = Study::load(url(), "a");
  EXPECT_EQ(study.trial(1)->violation, std::numeric_limits<double>::infinity());
  EXPECT_EQ(study.best()->id, 2U);
}

TEST_P(StudyFileTest, WhatIsAddedWithoutAWorkerIsForced) {
  Study study = Study::open(url(), spec_named("a"));
  study.add({{.raw = {0.5, 1}}});
  EXPECT_EQ(study.syncs_and_commits().first, 1U);
}

TEST_P(StudyFileTest, OtherSpacesAreRefusedAndTheDifferenceNamed) {
  {
    Study study = Study::open(url(), spec_named("a"));
    Sampler sampler = random_sampler(3);
    study.tell(study.ask(sampler)->id, {.values = {1}});
  }
  StudySpec other = spec_named("a");
  other.space = space_text({"x", "n"}, {Space::continuous(0, 2), kSpaces[1]});
  EXPECT_THAT(message_of([&] { Study::open(url(), other, {.resume = true}); }),
              HasSubstr("variable 'x' was uniform(0, 1) and is uniform(0, 2)"));
  other.space = space_text({"x"}, {kSpaces[0]});
  EXPECT_THAT(message_of([&] { Study::open(url(), other, {.resume = true}); }),
              HasSubstr("variable 'n' is not there any more"));
  other.space = space_text({"n", "x"}, {kSpaces[1], kSpaces[0]});
  EXPECT_THAT(message_of([&] { Study::open(url(), other, {.resume = true}); }),
              HasSubstr("has another place"));
  StudySpec down = spec_named("a");
  down.maximize = {false};
  EXPECT_THAT(message_of([&] { Study::open(url(), down, {.resume = true}); }),
              HasSubstr("other directions"));
  EXPECT_EQ(Study::load(url()).size(), 1U);
}

TEST_P(StudyFileTest, AfterAnAllowedChangeFittingTrialsAreKnown) {
  {
    Study study = Study::open(url(), spec_named("a"));
    study.add({{.raw = {0.2, 1}, .told = Told{.values = {5}}},
               {.raw = {0.9, 2}, .told = Told{.values = {6}}}});
  }
  StudySpec other = spec_named("a");
  const std::vector<Space> spaces{Space::separate(0, 3, 1), Space::continuous(0, 0.5)};
  other.space = space_text({"n", "x"}, spaces);  // another order, and x ends at 0.5
  Study study = Study::open(url(), other, {.resume = true, .allow_space_change = true});
  Sampler sampler =
      Sampler::random(spaces, {.max_steps = 3, .words = python_random(std::uint64_t{1})});
  std::vector<std::uint64_t> ids;
  while (const std::optional<TrialRecord> trial = study.ask(sampler)) ids.push_back(trial->id);
  EXPECT_THAT(ids, ElementsAre(3, 4));  // trial 1 counts, trial 2 lies outside
  EXPECT_EQ(study.best()->id, 2U);
  EXPECT_EQ(study.spec().space, other.space);
}

TEST_P(StudyFileTest, AReaderFollows) {
  Study study = Study::open(url(), spec_named("a"));
  Sampler sampler = random_sampler(5);
  Study reader = Study::load(url(), "a");
  EXPECT_EQ(reader.size(), 0U);
  study.tell(study.ask(sampler)->id, {.values = {1}});
  const std::uint64_t seen = reader.refresh();
  EXPECT_EQ(reader.size(), 1U);
  EXPECT_EQ(reader.worker(), 0U);
  const std::uint64_t second = study.ask(sampler)->id;
  study.report(second, 1, 0.5);
  EXPECT_GT(reader.refresh(), seen);
  const std::vector<TrialRecord> changed = reader.trials_since(seen);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed[0].id, second);
  EXPECT_EQ(changed[0].reports.size(), 1U);
  const std::vector<WorkerRecord> workers = reader.workers();
  ASSERT_EQ(workers.size(), 1U);
  EXPECT_TRUE(workers[0].alive);
  EXPECT_EQ(workers[0].process, ::getpid());
}

TEST_P(StudyFileTest, ALoadedStudyCanBeAddedTo) {
  {
    const Study made = Study::open(url(), spec_named("a"));
  }
  Study loaded = Study::load(url(), "a");
  EXPECT_THAT(loaded.add({{.raw = {0.5, 1}}}), ElementsAre(1));
  EXPECT_EQ(Study::load(url(), "a").trial(1)->stage, TrialStage::kWaiting);
}

TEST_P(StudyFileTest, WhatIsNotThereIsSaidAndNotMade) {
  EXPECT_THAT(message_of([&] { Study::load(url(), "a"); }), HasSubstr("there is no study at"));
  EXPECT_THAT(message_of([&] { Study::remove(url(), "a"); }), HasSubstr("there is no study at"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "s.db"));
  {
    const Study made = Study::open(url(), spec_named("a"));
  }
  EXPECT_THAT(message_of([&] { Study::load(url(), "b"); }),
              testing::AllOf(HasSubstr("no study 'b'"), HasSubstr("'a'")));
}

TEST_P(StudyFileTest, EveryPolicyOfTheDiskKeepsAll) {
  for (const Fsync fsync : {Fsync::kAlways, Fsync::kSecond, Fsync::kOff}) {
    const std::string name = fmt::format("s{}", static_cast<int>(fsync));
    {
      Study study = Study::open(url(), spec_named(name), {.fsync = fsync});
      Sampler sampler = random_sampler(3);
      while (const auto trial = study.ask(sampler)) study.tell(trial->id, told_of(*trial));
      const auto [syncs, commits] = study.syncs_and_commits();
      EXPECT_EQ(syncs == commits, fsync == Fsync::kAlways);
    }
    EXPECT_EQ(Study::load(url(), name).size(), 3U);
  }
}

TEST_P(StudyFileTest, WhatCannotBeForcedToTheDiskIsNotStored) {
  Study study = Study::open(url(), spec_named("a"), {.fsync = Fsync::kAlways});
  Sampler sampler = random_sampler(3);
  const std::uint64_t first = study.ask(sampler)->id;
  disk_is_broken = true;
  const std::string message = message_of([&] { study.tell(first, {.values = {1}}); });
  disk_is_broken = false;
  EXPECT_THAT(message, HasSubstr("failed"));
  EXPECT_EQ(Study::load(url(), "a").trial(first)->stage, TrialStage::kRunning);
  study.tell(first, {.values = {2}});
  EXPECT_THAT(Study::load(url(), "a").trial(first)->values, ElementsAre(2));
  const auto [syncs, commits] = study.syncs_and_commits();
  EXPECT_EQ(syncs, commits);
}

TEST_P(StudyFileTest, SyncRunsBesideTheFirstWriteOfALoadedStudy) {
  Study::open(url(), spec_named("a"));
  for (int i = 0; i < 20; ++i) {
    Study study = Study::load(url(), "a");
    std::thread other([&] {
      for (int k = 0; k < 20; ++k) study.sync();
    });
    study.add({{.raw = {0.5, 1}}});  // opens the file for writing, in place of the one for reading
    other.join();
  }
  EXPECT_EQ(Study::load(url(), "a").size(), 20U);
}

TEST_P(StudyFileTest, TheSpecMayBeReadWhileTheSpaceChanges) {
  Study study = Study::open(url(), spec_named("a"));
  StudySpec other = spec_named("a");
  other.space = space_text({"x", "n"}, {Space::continuous(0, 2), kSpaces[1]});
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) EXPECT_FALSE(study.spec().space.empty());
  });
  for (int i = 0; i < 20; ++i) {
    const StudyOptions change{.resume = true, .allow_space_change = true};
    Study::open(url(), i % 2 == 0 ? other : spec_named("a"), change);
    study.refresh();
    EXPECT_EQ(study.spec().space, i % 2 == 0 ? other.space : spec_named("a").space);
  }
  done = true;
  reader.join();
}

// Child processes end with _exit: nothing of the parent's is run twice.
template <class Work>
pid_t in_child(const Work& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int code = 1;
  try {
    work();
    code = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  ::_exit(code);
}

TEST_P(StudyFileTest, ProcessesMayCreateOneFileTogether) {
  for (int round = 0; round < 30; ++round) {
    const std::string path = fmt::format("{}{}", url(), round);
    std::array<int, 2> gate{};
    ASSERT_EQ(::pipe(gate.data()), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      children.push_back(in_child([&] {
        ::close(gate[1]);
        char none = 0;
        EXPECT_EQ(::read(gate[0], &none, 1), 0);  // returns in all children at once
        Study::open(path, spec_named("a"), {.resume = true});
      }));
    }
    ::close(gate[0]);
    ::close(gate[1]);
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0) << "round " << round;
    }
  }
}

TEST_P(StudyFileTest, FourProcessesShareOneBudget) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(in_child([&] {
      Study study = Study::open(url(), spec_named("a"), {.resume = true});
      Sampler sampler = random_sampler(100);
      while (const auto trial = study.ask(sampler, config_of))
        study.tell(trial->id, told_of(*trial));
    }));
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const Study study = Study::load(url(), "a");
  EXPECT_EQ(study.size(), 100U);
  EXPECT_EQ(points_of(study), uninterrupted(100));
  for (const TrialRecord& trial : study.trials()) {
    EXPECT_EQ(trial.stage, TrialStage::kOk);
    EXPECT_EQ(trial.attempt, 1);
  }
}

TEST_P(StudyFileTest, OnlyTheTrialOfAKilledProcessBeginsAnew) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = in_child([&] {
    Study study = Study::open(url(), spec_named("a"), {.resume = true});
    Sampler sampler = random_sampler(5);
    study.tell(study.ask(sampler)->id, {.values = {1}});
    const std::uint64_t running = study.ask(sampler)->id;
    [[maybe_unused]] const ssize_t written = ::write(ready[1], &running, sizeof running);
    ::pause();
  });
  std::uint64_t running = 0;
  ASSERT_EQ(::read(ready[0], &running, sizeof running), static_cast<ssize_t>(sizeof running));
  Study study = Study::open(url(), spec_named("a"), {.resume = true});
  Sampler sampler = random_sampler(5);
  EXPECT_EQ(study.ask(sampler)->id, 3U);  // trial 2 runs elsewhere
  EXPECT_THAT(message_of([&] { study.tell(running, {.values = {1}}); }),
              HasSubstr("does not run here"));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  const TrialRecord again = study.ask(sampler).value();
  EXPECT_EQ(again.id, running);
  EXPECT_EQ(again.attempt, 2);
  EXPECT_EQ(study.ask(sampler)->id, 4U);
  ::close(ready[0]);
  ::close(ready[1]);
}

// The largest size a file may have stands for the size of a disk.
class FullDisk {
 public:
  explicit FullDisk(std::uintmax_t size) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{.rlim_cur = size, .rlim_max = old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  sighandler_t handler_;
};

TEST_P(StudyFileTest, TheSearchGoesOnAfterAFullDisk) {
  const std::string file =
      folder_ / (std::string(GetParam()) == "journal" ? "s.jsonl" : "s.db-wal");
  Study study = Study::open(url(), spec_named("a"), {.fsync = Fsync::kOff});
  Sampler sampler = random_sampler(4);
  const auto large = [](const Sample&) { return "\"" + std::string(100'000, 'x') + "\""; };
  {
    const FullDisk full(std::filesystem::file_size(file) + 10);
    EXPECT_THAT(message_of([&] { study.ask(sampler, large); }), HasSubstr("failed"));
    EXPECT_EQ(study.worker(), 0U);
  }
  EXPECT_EQ(study.ask(sampler)->id, 1U);  // and the worker is known to others
  EXPECT_EQ(Study::load(url(), "a").workers().size(), 1U);
  {
    const FullDisk full(std::filesystem::file_size(file) + 10);
    EXPECT_THAT(message_of([&] { study.tell(1, {.values = {1}}); }), HasSubstr("failed"));
  }
  EXPECT_EQ(study.ask(sampler)->id, 2U);  // the end of trial 1 is not known to the search
  EXPECT_EQ(sampler.pending(), 2U);
  study.tell(1, {.values = {1}});
  EXPECT_EQ(study.ask(sampler)->id, 3U);
  EXPECT_EQ(study.ask(sampler)->id, 4U);
  EXPECT_EQ(sampler.pending(), 3U);
  EXPECT_EQ(points_of(study), uninterrupted(4));
}

TEST_P(StudyFileTest, AStudyGoesOnAfterAFullDisk) {
  Study study = Study::open(url(), spec_named("a"), {.fsync = Fsync::kOff});
  Sampler sampler = random_sampler(50);
  study.tell(study.ask(sampler)->id, {.values = {1}});
  const std::uint64_t second = study.ask(sampler)->id;
  // The largest size a file may have stands for the size of a disk.
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  std::uintmax_t size = std::filesystem::file_size(
      folder_ / (std::string(GetParam()) == "journal" ? "s.jsonl" : "s.db-wal"));
  const rlimit small{.rlim_cur = size + 100, .rlim_max = old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Told large{.values = {2}, .returned = "\"" + std::string(100'000, 'x') + "\""};
  const std::string message = message_of([&] { study.tell(second, large); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("failed"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  const Study reader = Study::load(url(), "a");
  EXPECT_EQ(reader.trial(1)->stage, TrialStage::kOk);
  EXPECT_EQ(reader.trial(2)->stage, TrialStage::kRunning);
  study.tell(second, large);
  EXPECT_EQ(Study::load(url(), "a").trial(2)->stage, TrialStage::kOk);
}

INSTANTIATE_TEST_SUITE_P(Places, StudyFileTest, testing::Values("journal", "sqlite"),
                         [](const auto& about) { return std::string(about.param); });

// --- the journal ---

TEST(JournalTest, ABrokenLastLineIsCutOff) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  {
    Study study = Study::open(path, spec_named("a"));
    Sampler sampler = random_sampler(5);
    study.tell(study.ask(sampler)->id, {.values = {1}});
  }
  const std::string whole = content(path);
  for (const std::string torn : {"{", R"({"op":"tell","stu)", R"({"op":"leave","study":1})"}) {
    std::ofstream(path, std::ios::binary) << whole << torn;
    EXPECT_EQ(Study::load(path).size(), 1U);
    EXPECT_EQ(content(path), whole + torn);  // readers repair nothing
    Study study = Study::open(path, spec_named("a"), {.resume = true});
    Sampler sampler = random_sampler(5);
    EXPECT_EQ(study.ask(sampler)->id, 2U);
    EXPECT_EQ(Study::load(path).size(), 2U);
    EXPECT_THAT(content(path), testing::StartsWith(whole));
  }
}

// Trials that were given at once; a long text makes them more than a block of reading.
std::vector<GivenTrial> three_given(std::size_t length) {
  const std::string text = "\"" + std::string(length, 'x') + "\"";
  std::vector<GivenTrial> given;
  for (const double x : {0.1, 0.2, 0.3}) given.push_back({.raw = {x, 1}, .config = text});
  return given;
}

TEST(JournalTest, ATornTransactionIsCutOffAsAWhole) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  for (const std::size_t length : {std::size_t{1}, std::size_t{300'000}}) {
    std::filesystem::remove(path);
    Study::open(path, spec_named("a"));
    const std::string before = content(path);
    Study::open(path, spec_named("a"), {.resume = true}).add(three_given(length));
    const std::string after = content(path);
    ASSERT_EQ(Study::load(path).size(), 3U);
    std::set<std::size_t> ends{before.size() + 1, after.size() - 1};
    for (std::size_t at = before.size(); (at = after.find('\n', at)) < after.size() - 1; ++at) {
      ends.insert({at - 1, at, at + 1, at + 2});
    }
    for (const std::size_t end : ends) {
      std::ofstream(path, std::ios::binary) << after.substr(0, end);
      EXPECT_EQ(Study::load(path).size(), 0U) << end;
      Study study = Study::open(path, spec_named("a"), {.resume = true});
      EXPECT_EQ(content(path), before) << end;
      EXPECT_EQ(study.add(three_given(1)).front(), 1U);
      EXPECT_EQ(Study::load(path).size(), 3U);
    }
  }
}

TEST(JournalTest, AReaderDoesNotFollowAHalfTransaction) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  Study::open(path, spec_named("a"));
  const std::string before = content(path);
  Study::open(path, spec_named("a"), {.resume = true}).add(three_given(10));
  const std::string after = content(path);
  std::filesystem::resize_file(path, before.size());
  Study reader = Study::load(path);
  // Two whole lines of three, as a full disk leaves them until the writer takes them back.
  const std::size_t second = after.find('\n', after.find('\n', before.size()) + 1) + 1;
  std::ofstream(path, std::ios::binary | std::ios::app)
      << after.substr(before.size(), second - before.size());
  reader.refresh();
  EXPECT_EQ(reader.size(), 0U);
  std::filesystem::resize_file(path, before.size());
  Study::open(path, spec_named("a"), {.resume = true}).add({{.raw = {0.7, 2}}});
  reader.refresh();
  ASSERT_EQ(reader.size(), 1U);
  EXPECT_THAT(reader.trial(1)->raw, ElementsAre(0.7, 2));
}

TEST(JournalTest, AReaderForgetsWhatCouldNotBeForced) {
  for (const bool looks_between : {true, false}) {
    const Folder folder;
    const std::string path = folder / "s.jsonl";
    Study study = Study::open(path, spec_named("a"), {.fsync = Fsync::kAlways});
    Sampler sampler = random_sampler(3);
    const std::uint64_t first = study.ask(sampler)->id;
    Study reader = Study::load(path, "a");
    std::optional<TrialStage> seen;
    before_it_breaks = [&] {
      reader.refresh();
      seen = reader.trial(first)->stage;
    };
    disk_is_broken = true;
    EXPECT_THROW(study.tell(first, {.values = {1}}), Error);
    disk_is_broken = false;
    before_it_breaks = nullptr;
    EXPECT_EQ(seen, TrialStage::kOk) << "readers do not wait for the disk";
    if (looks_between) {
      reader.refresh();
      EXPECT_EQ(reader.trial(first)->stage, TrialStage::kRunning);
    }
    study.tell(first, {.values = {2}, .returned = "\"longer than the first\""});
    reader.refresh();
    EXPECT_THAT(reader.trial(first)->values, ElementsAre(2));
  }
}

TEST(JournalTest, AWorkerForgetsWhatOthersCouldNotForce) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  Study other = Study::open(path, spec_named("a"), {.fsync = Fsync::kAlways});
  Study worker = Study::open(path, spec_named("a"), {.resume = true});
  Sampler sampler = random_sampler(2);
  before_it_breaks = [&] { worker.refresh(); };
  disk_is_broken = true;
  EXPECT_THROW(other.add({{.raw = {0.5, 1}}, {.raw = {0.25, 3}}}), Error);
  disk_is_broken = false;
  before_it_breaks = nullptr;
  EXPECT_EQ(worker.size(), 2U);
  other.add({{.raw = {0.75, 2}}});
  const std::optional<TrialRecord> given = worker.ask(sampler);
  ASSERT_TRUE(given.has_value());
  EXPECT_THAT(given->raw, ElementsAre(0.75, 2));
  worker.tell(given->id, {.values = {1}});
  EXPECT_TRUE(worker.ask(sampler).has_value());
  EXPECT_FALSE(worker.ask(sampler).has_value()) << "the point of the user was one of two";
}

TEST(JournalTest, StudiesThatWereTakenBackAreNotListed) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  Study::open(path, spec_named("a"));
  const auto before = std::filesystem::file_size(path);
  Study::open(path, spec_named("b"));
  const auto log = *open_journal_log(path, Access::kRead, Fsync::kOff);
  EXPECT_EQ(log->studies()->size(), 2U);
  std::filesystem::resize_file(path, before);
  EXPECT_EQ(log->studies()->size(), 1U);
}

TEST(JournalTest, ADamagedLineIsNamedAndNothingIsChanged) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  {
    Study study = Study::open(path, spec_named("a"));
    Sampler sampler = random_sampler(5);
    study.tell(study.ask(sampler)->id, {.values = {1}});
  }
  const std::string whole = content(path);
  for (const std::string bad : {"garbage", R"({"op":"dance","study":1})",
                                R"({"op":"tell","study":1,"trial":77,"state":"ok"})",
                                R"({"op":"ask","study":1,"trial":9,"worker":1,"raw":[1,2]})",
                                R"({"op":"tell","study":0})"}) {
    std::ofstream(path, std::ios::binary) << whole << bad << "\n";
    EXPECT_THAT(message_of([&] { Study::load(path); }), HasSubstr(", line 7: ")) << bad;
    EXPECT_THAT(message_of([&] { Study::open(path, spec_named("a"), {.resume = true}); }),
                HasSubstr(", line 7: "));
    EXPECT_EQ(content(path), whole + bad + "\n");
  }
}

TEST(JournalTest, OfAWriteThatFailsNoLineStays) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  Study study = Study::open("file:" + path, spec_named("a"), {.fsync = Fsync::kOff});
  Sampler sampler = random_sampler(4);
  const std::string before = content(path);
  const auto large = [](const Sample&) { return "\"" + std::string(100'000, 'x') + "\""; };
  {
    const FullDisk full(before.size() + 50'000);  // room for the line of the worker
    EXPECT_THAT(message_of([&] { study.ask(sampler, large); }), HasSubstr("failed"));
  }
  EXPECT_EQ(content(path), before);
}

TEST(JournalTest, WhoFindsADamagedLineHoldsUpNobody) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  Study study = Study::open("file:" + path, spec_named("a"));
  Sampler sampler = random_sampler(5);
  std::ofstream(path, std::ios::app) << "damaged\n";
  EXPECT_THAT(message_of([&] { study.ask(sampler); }), HasSubstr("line 3"));
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(::flock(file, LOCK_EX | LOCK_NB), 0) << "the lock is free";
  ::close(file);
}

TEST(JournalTest, AnotherFileIsNotTouched) {
  const Folder folder;
  const std::string path = folder / "notes.jsonl";
  for (const std::string text : {"my notes\n", "{\"a\":1}\n", "no newline"}) {
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_THAT(message_of([&] { Study::open(path, spec_named("a")); }),
                HasSubstr("is not a journal of studies"));
    EXPECT_EQ(content(path), text);
  }
}

TEST(JournalTest, ANewerVersionIsRefused) {
  const Folder folder;
  const std::string path = folder / "s.jsonl";
  std::ofstream(path) << R"({"op":"journal","of":"divisi studies","version":2})" << "\n";
  EXPECT_THAT(message_of([&] { Study::load(path); }), HasSubstr("newer version of divisi"));
  EXPECT_THAT(message_of([&] { Study::open(path, spec_named("a")); }),
              HasSubstr("newer version of divisi"));
}

TEST(JournalTest, EveryLineIsReadAsItWasWritten) {
  for (int kind = 1; kind <= 11; ++kind) {
    const Change change{.kind = static_cast<ChangeKind>(kind),
                        .trial = 3,
                        .worker = 2,
                        .time = 1.5,
                        .numbers = {1, 2.5}};
    const std::string text = journal_text(JournalChange{.study = 4, .change = change}).value();
    const JournalLine line = parse_journal_line(text).value();
    EXPECT_EQ(journal_text(line).value(), text);
    EXPECT_EQ(std::get<JournalChange>(line).change.kind, change.kind);
  }
}

// --- SQLite ---

std::string run_sql(const std::string& path, const char* text) {
  sqlite3* database = nullptr;
  std::string first;
  if (sqlite3_open(path.c_str(), &database) == SQLITE_OK) {
    sqlite3_exec(
        database, text,
        [](void* to, int, char** values, char**) {
          *static_cast<std::string*>(to) = values[0] == nullptr ? "" : values[0];
          return 0;
        },
        &first, nullptr);
  }
  sqlite3_close(database);
  return first;
}

TEST(SqliteTest, AFileThatIsNoDatabaseIsRefused) {
  const Folder folder;
  const std::string path = folder / "s.db";
  const std::string text(5000, 'x');
  std::ofstream(path) << text;
  EXPECT_THAT(message_of([&] { Study::open(path, spec_named("a")); }),
              HasSubstr("is not a SQLite database"));
  EXPECT_EQ(content(path), text);
}

TEST(SqliteTest, ADatabaseOfOthersIsRefused) {
  const Folder folder;
  const std::string path = folder / "s.db";
  run_sql(path, "CREATE TABLE mine (a)");
  EXPECT_THAT(message_of([&] { Study::open(path, spec_named("a")); }),
              HasSubstr("of another program"));
  EXPECT_EQ(run_sql(path, "SELECT count(*) FROM sqlite_master"), "1");
}

TEST(SqliteTest, ANewerSchemaIsRefused) {
  const Folder folder;
  const std::string path = folder / "s.db";
  {
    const Study made = Study::open(path, spec_named("a"));
  }
  run_sql(path, "PRAGMA user_version = 2");
  EXPECT_THAT(message_of([&] { Study::load(path); }), HasSubstr("newer version of divisi"));
  EXPECT_THAT(message_of([&] { Study::open(path, spec_named("a"), {.resume = true}); }),
              HasSubstr("newer version of divisi"));
}

TEST(SqliteTest, ADamagedDatabaseIsOneLine) {
  const Folder folder;
  const std::string path = folder / "s.db";
  {
    Study study = Study::open(path, spec_named("a"));
    Sampler sampler = random_sampler(300);
    while (const auto trial = study.ask(sampler, config_of)) study.tell(trial->id, told_of(*trial));
  }
  const std::string whole = content(path);
  ASSERT_GT(whole.size(), 20'000U);
  std::string broken = whole;
  broken.replace(16384, broken.size() - 16384, std::string(broken.size() - 16384, '\xff'));
  std::ofstream(path, std::ios::binary) << broken;
  EXPECT_THAT(message_of([&] { Study::load(path); }), HasSubstr("is damaged"));
  std::ofstream(path, std::ios::binary) << whole.substr(0, 10'000);
  EXPECT_THAT(message_of([&] { Study::load(path); }), HasSubstr("is damaged"));
}

TEST(SqliteTest, PeopleMayReadTheTrials) {
  const Folder folder;
  const std::string path = folder / "s.db";
  Study study = Study::open(path, spec_named("a"));
  Sampler sampler = random_sampler(2);
  study.tell(study.ask(sampler, config_of)->id, {.values = {1}, .returned = "[5]"});
  EXPECT_EQ(run_sql(path, "SELECT study || ended || returned FROM trial WHERE id = 1"), "aok[5]");
}

// --- where ---

TEST(PlaceTest, UrlsThatAreNotUnderstood) {
  for (const std::string url : {"", "redis:x", "study.txt", "sqlite:", "file:"}) {
    EXPECT_NE(message_of([&] { Study::open(url, spec_named("a")); }), "nothing was thrown") << url;
  }
  EXPECT_THAT(message_of([&] { Study::open("mysql://h/db", spec_named("a")); }),
              HasSubstr("sqlite:PATH"));
  EXPECT_THAT(message_of([&] { Study::open("/no/such/folder/s.db", spec_named("a")); }),
              HasSubstr("cannot be used"));
}

TEST(WorkerTest, AProcessMayHaveANewlineInItsName) {
  std::array<char, 16> name{};
  ::prctl(PR_GET_NAME, name.data());
  ::prctl(PR_SET_NAME, "a\nb) Z 1");
  const WorkerIdentity own = WorkerIdentity::own(15);
  EXPECT_NE(own.begun, 0);
  EXPECT_TRUE(own.lives(0, 1e6));
  ::prctl(PR_SET_NAME, name.data());
  EXPECT_TRUE(own.lives(0, 1e6));
}

TEST(PlaceTest, AWorkerKeepsItsHeartbeat) {
  for (const double seconds : {0.5, 60.0}) {
    const WorkerIdentity own = WorkerIdentity::own(seconds);
    EXPECT_EQ(WorkerIdentity::parse(own.text()).heartbeat, seconds);
  }
}

TEST(PlaceTest, NetworkFileSystemsAreKnown) {
  EXPECT_EQ(network_file_system(0x6969), "NFS");
  EXPECT_EQ(network_file_system(static_cast<int>(0xFF534D42)), "CIFS");  // as a negative number
  EXPECT_EQ(network_file_system(0x01021997), "9p");
  EXPECT_EQ(network_file_system(0x65735546), "FUSE");
  EXPECT_EQ(network_file_system(0x0BD00BD0), "Lustre");
  EXPECT_EQ(network_file_system(0xEF53), "");      // ext4
  EXPECT_EQ(network_file_system(0x01021994), "");  // tmpfs
  EXPECT_EQ(network_file_system(0x794C7630), "");  // overlay
}

TEST(PlaceTest, ASpecThatCannotBeStoredIsRefused) {
  EXPECT_THAT(message_of([] { Study::open("memory:", {}); }), HasSubstr("needs a name"));
  StudySpec bad = spec_named("a");
  bad.options = "{";
  EXPECT_THAT(message_of([&] { Study::open("memory:", bad); }), HasSubstr("is not JSON"));
  bad = spec_named("a");
  bad.maximize.clear();
  EXPECT_THAT(message_of([&] { Study::open("memory:", bad); }), HasSubstr("nothing to optimize"));
}

TEST(PlaceTest, SpacesAsTextAndBack) {
  const std::vector<Space> spaces{Space::continuous(-1.5, 1e300), Space::separate(0.4, 2.2, 0.4),
                                  Space::fixed(3)};
  const auto read =
      parse_space_text(space_text({"a", "b", "c"}, spaces, {"", "[[\"int\",null]]", ""}));
  ASSERT_EQ(read.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(read[i].second, spaces[i]);
  EXPECT_EQ(read[2].first, "c");
  EXPECT_THROW(parse_space_text("[]"), UsageError);
  EXPECT_THROW(parse_space_text(R"({"variables":[{"kind":"round"}]})"), UsageError);
}

}  // namespace
}  // namespace divisi::tune
