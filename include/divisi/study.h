// Studies: searches that outlive their process. Every change of a trial goes into a SQLite file, a
// JSON-lines journal, or memory, before anybody acts on it; several processes may work on one
// study.
//
//   using namespace divisi::tune;
//   Study study = Study::open("sqlite:study.db", {.name = "lr", .space = space_text(names,
//   spaces)},
//                             {.resume = true});
//   Sampler sampler = Sampler::random(spaces, {.max_steps = 50, .words = python_random(7)});
//   while (std::optional<TrialRecord> trial = study.ask(sampler)) {
//     study.tell(trial->id, {.values = {objective(trial->raw)}});
//   }
//
// A trial whose end is recorded is never given out again; one whose process died is given out
// again, under the same id. docs/tuner.md.
#pragma once

#include "divisi/export.h"
#include "divisi/sampler.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::tune {

// Where a trial stands; the four ends are in the order of TrialState.
enum class TrialStage {
  kWaiting,  // given by the user, or left behind by a process that died: nobody works on it
  kRunning,  // a worker has it
  kOk,       // ended as TrialState::kOk
  kFail,     // ended as TrialState::kFail
  kSkip,     // ended as TrialState::kSkip
  kPruned,   // ended as TrialState::kPruned
};

// "waiting", "running", "ok", "fail", "skip", "pruned".
DIVISI_API std::string_view stage_name(TrialStage stage) noexcept;
// Whether nothing follows it.
constexpr bool is_finished(TrialStage stage) noexcept {
  return stage != TrialStage::kWaiting && stage != TrialStage::kRunning;
}

// What a study is about. Texts named JSON hold one JSON document.
struct StudySpec {
  std::string name = {};  // unique within a file; not empty
  // What is searched, as space_text() writes it.
  std::string space = {};
  // For each objective: whether larger values are better.
  std::vector<bool> maximize = {false};
  std::vector<std::string> targets = {};  // the objectives as text: R['reward']
  std::string algorithm = {};             // "random", "bayes", ...
  std::string options = "{}";             // JSON: of the algorithm, the seed among them
  double created = 0;                     // seconds since 1970; open() fills it in
};

// All that is known of a trial.
struct TrialRecord {
  std::uint64_t id = 0;                     // from 1, in the order of their making
  TrialStage stage = TrialStage::kWaiting;  // where it stands
  Origin origin = Origin::kSearch;          // who chose its point
  std::vector<double> raw = {};             // a value per space, as Sample::values
  std::vector<double> values = {};          // of the objectives; of a pruned one the last report
  double violation = 0;                     // of constraints
  int attempt = 0;                          // how often a worker has begun it
  int tries = 0;                            // calls of the objective in the last attempt
  std::uint64_t worker = 0;                 // who has it or had it last; 0: nobody yet
  double started = 0;                       // seconds since 1970; 0: not yet
  double ended = 0;                         // likewise
  std::string config = {};                  // JSON: what the objective gets
  std::string returned = {};                // JSON: what it gave back; "" if nothing
  std::string metrics = {};                 // JSON: "time", ...; "" if nothing
  std::string error = {};                   // why it failed, or was skipped
  std::vector<std::pair<std::int64_t, double>> reports = {};  // (step, value), in their order
  std::uint64_t changed = 0;  // the change that made it so; see trials_since()
};

// How a trial ended.
struct Told {
  TrialState state = TrialState::kOk;  // which of the four
  std::vector<double> values = {};     // of the objectives
  double violation = 0;                // of constraints
  std::string returned = {};           // JSON, or ""
  std::string metrics = {};            // JSON, or ""
  std::string error = {};              // for kFail and kSkip
  int tries = 1;                       // calls of the objective
};

// A trial that was finished elsewhere, or a point that is to be tried.
struct GivenTrial {
  std::vector<double> raw = {};   // a value per space
  std::string config = {};        // JSON
  std::optional<Told> told = {};  // its end, if it has one
};

// A process, or a part of one, that works on trials.
struct WorkerRecord {
  std::uint64_t id = 0;      // from 1
  std::string host = {};     // its name
  std::int64_t process = 0;  // process id there
  double joined = 0;         // seconds since 1970
  double seen = 0;           // its last change or heartbeat
  bool left = false;         // it said that it is done
  bool alive = false;        // as far as can be told from here
};

// When a change is forced to the disk. A process that is killed loses nothing in any case; these
// are about machines that lose their power.
enum class Fsync {
  kAlways,  // before anybody acts on it
  kSecond,  // within a second
  kOff,     // when the system likes
};

// How an error line of Study::open names what its reader can do; a front end gives its own words.
struct StudyWords {
  std::string resume = "StudyOptions::resume";                    // go on with a study
  std::string name = "StudySpec::name";                           // choose another name
  std::string space_change = "StudyOptions::allow_space_change";  // go on with other spaces
};

// For Study::open.
struct StudyOptions {
  bool resume = false;              // go on with a study of that name, if there is one
  bool allow_space_change = false;  // even if it searched other spaces
  Fsync fsync = Fsync::kSecond;     // when changes reach the disk
  // How often a worker shows that it lives, for those who cannot see its process. One that was
  // silent four times as long has died.
  std::chrono::milliseconds heartbeat = std::chrono::seconds(15);
  StudyWords words = {};  // of error lines
};

// A study in short.
struct StudySummary {
  StudySpec spec;            // what it is about
  std::size_t finished = 0;  // trials by stage
  std::size_t ok = 0;        // of those
  std::size_t running = 0;   // likewise
  std::size_t waiting = 0;   // likewise
};

// The spaces of a search as JSON, for StudySpec::space: a name each, and optionally what follows
// the draw, as JSON.
DIVISI_API std::string space_text(const std::vector<std::string>& names,
                                  const std::vector<Space>& spaces,
                                  const std::vector<std::string>& transforms = {});
// The names and spaces of such a text, in its order. Throws UsageError.
DIVISI_API std::vector<std::pair<std::string, Space>> parse_space_text(std::string_view text);

// One study in its file. Any thread may call anything; what several threads write at the same time
// is written at once. Where it is stored: `sqlite:PATH`, `file:PATH` (JSON lines), `memory:`, or a
// path that ends in .db, .sqlite, .sqlite3 or .jsonl.
//
// All throw Error with one line that says what and where: a file that is not a study's, damaged,
// written by a newer version, read-only or on a network file system, a full disk. The study is then
// as it was before.
class DIVISI_API Study {
 public:
  // Makes it, or goes on with it. Throws UsageError: it exists and resume is off; it searched
  // other spaces or has other directions.
  static Study open(const std::string& url, StudySpec spec, const StudyOptions& options = {});
  // The study of that name as it is; without a name the only one there. Throws Error (kNotFound).
  static Study load(const std::string& url, const std::string& name = {});
  // All studies of a file, the oldest first.
  static std::vector<StudySummary> list(const std::string& url);
  // Forgets a study. Throws Error (kNotFound); UsageError while somebody works on it.
  static void remove(const std::string& url, const std::string& name);

  Study(Study&&) noexcept;
  Study& operator=(Study&&) noexcept;
  // Leaves: what this object has not finished may be begun by others.
  ~Study();

  // What it is about, as of the last call that read: another process may have changed the space.
  StudySpec spec() const;
  // Where it is stored.
  const std::string& url() const noexcept;

  // The next trial to run: one that waits (of the user, or left behind by a dead worker), otherwise
  // the sampler's next, which first learns what others have done. Nothing when the search has
  // ended. `config` makes the configuration of a new trial as JSON. A study has one sampler, which
  // nobody else asks or tells.
  std::optional<TrialRecord> ask(Sampler& sampler,
                                 const std::function<std::string(const Sample&)>& config = nullptr);
  // A further call of the objective for a running trial, from 1.
  void begin_try(std::uint64_t id, int number);
  // What a running trial has reached.
  void report(std::uint64_t id, std::int64_t step, double value);
  // The end of a trial that this object was given. After the call it is recorded. Throws
  // UsageError: not running here.
  void tell(std::uint64_t id, const Told& told);
  // Gives a running trial back, for this or another worker to begin anew.
  void give_back(std::uint64_t id);

  // Points that come first, and trials that were finished elsewhere; all or none. The ids.
  std::vector<std::uint64_t> add(const std::vector<GivenTrial>& trials);

  // Reads what others have written; the number of the last change, which never falls.
  std::uint64_t refresh();
  // All trials by id, as of the last call that read.
  std::vector<TrialRecord> trials() const;
  // Those changed after that number, by id: refresh(), then this, to follow a study.
  std::vector<TrialRecord> trials_since(std::uint64_t change) const;
  // One of them; nothing if there is none.
  std::optional<TrialRecord> trial(std::uint64_t id) const;
  // How many there are.
  std::size_t size() const;
  // The best successful trial by the first objective: feasible ones first, of equal ones the
  // earlier.
  std::optional<TrialRecord> best() const;
  // Who has worked on it.
  std::vector<WorkerRecord> workers() const;
  // This object's number among them; 0: it has only read so far.
  std::uint64_t worker() const;

  // Forces everything to the disk.
  void sync();
  // How often that was done, and how many transactions were written.
  std::pair<std::uint64_t, std::uint64_t> syncs_and_commits() const;

 private:
  struct State;
  explicit Study(std::unique_ptr<State> state);
  void feed(Sampler& sampler);
  std::unique_ptr<State> state_;
};

}  // namespace divisi::tune
