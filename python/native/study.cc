#include "divisi/study.h"

#include "divisi/error.h"
#include "interpreter.h"
#include "tune.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <utility>

namespace nb = nanobind;

namespace divisi::python {
namespace {

using tune::Study;
using tune::TrialRecord;

// A study that can be closed before the interpreter forgets it. Every call that may wait is made
// without the interpreter's lock.
class OpenStudy {
 public:
  explicit OpenStudy(Study study) : study_(std::make_shared<Study>(std::move(study))) {}
  OpenStudy(OpenStudy&&) noexcept = default;
  // Leaving waits for the lock of the file, whose holder may wait for the interpreter's.
  ~OpenStudy() {
    if (study_) close();
  }

  // Held by the call that uses it, and given up without the interpreter's lock: another thread may
  // close meanwhile.
  std::shared_ptr<Study> use() const {
    if (!study_) throw UsageError("the study is closed");
    return study_;
  }

  void close() {
    std::shared_ptr<Study> last = std::move(study_);
    const Unlock unlock;
    last.reset();
  }

 private:
  std::shared_ptr<Study> study_;
};

tune::Told told_of(int state, std::vector<double> values, double violation, std::string returned,
                   std::string metrics, std::string error, int tries) {
  return {.state = static_cast<tune::TrialState>(state),
          .values = std::move(values),
          .violation = violation,
          .returned = std::move(returned),
          .metrics = std::move(metrics),
          .error = std::move(error),
          .tries = tries};
}

template <class T>
void take_item(const nb::dict& from, const char* name, T& to) {
  if (from.contains(name)) to = nb::cast<T>(from[name]);
}

OpenStudy open_study(const std::string& url, const nb::dict& about, const nb::dict& how) {
  tune::StudySpec spec;
  take_item(about, "name", spec.name);
  take_item(about, "space", spec.space);
  take_item(about, "maximize", spec.maximize);
  take_item(about, "targets", spec.targets);
  take_item(about, "algorithm", spec.algorithm);
  take_item(about, "options", spec.options);
  tune::StudyOptions options;
  int fsync = static_cast<int>(options.fsync);
  take_item(how, "resume", options.resume);
  take_item(how, "allow_space_change", options.allow_space_change);
  options.words = {
      .resume = "resume()", .name = "study_name(...)", .space_change = "allow_space_change()"};
  take_item(how, "fsync", fsync);
  options.fsync = static_cast<tune::Fsync>(fsync);
  const Unlock unlock;
  return OpenStudy(Study::open(url, std::move(spec), options));
}

OpenStudy load_study(const std::string& url, const std::string& name) {
  const Unlock unlock;
  return OpenStudy(Study::load(url, name));
}

nb::dict spec_dict(const tune::StudySpec& spec) {
  nb::dict about;
  about["name"] = spec.name;
  about["space"] = spec.space;
  about["maximize"] = spec.maximize;
  about["targets"] = spec.targets;
  about["algorithm"] = spec.algorithm;
  about["options"] = spec.options;
  about["created"] = spec.created;
  return about;
}

nb::list list_studies(const std::string& url) {
  std::vector<tune::StudySummary> found;
  {
    const Unlock unlock;
    found = Study::list(url);
  }
  nb::list list;
  for (const tune::StudySummary& one : found) {
    nb::dict about = spec_dict(one.spec);
    about["finished"] = one.finished;
    about["ok"] = one.ok;
    about["running"] = one.running;
    about["waiting"] = one.waiting;
    list.append(about);
  }
  return list;
}

void remove_study(const std::string& url, const std::string& name) {
  const Unlock unlock;
  Study::remove(url, name);
}

// `config` gets (id, raw values) and gives JSON; it may be called by another thread.
std::optional<TrialRecord> ask(const OpenStudy& open, tune::Sampler& sampler, nb::handle config) {
  std::shared_ptr<Study> study = open.use();
  std::function<std::string(const tune::Sample&)> text_of;
  if (!config.is_none()) {
    text_of =
        [held = std::make_shared<Object>(Object::share(config.ptr()))](const tune::Sample& sample) {
          const Lock lock;
          const nb::object raw = nb::cast(sample.values);
          const Object text = Object::steal(checked(PyObject_CallFunction(
              held->get(), "KO", static_cast<unsigned long long>(sample.id), raw.ptr())));
          return nb::cast<std::string>(nb::handle(text.get()));
        };
  }
  const Unlock unlock;
  return std::exchange(study, nullptr)->ask(sampler, text_of);
}

std::vector<std::uint64_t> add(const OpenStudy& open, const nb::list& given) {
  std::vector<tune::GivenTrial> trials;
  for (const nb::handle one : given) {
    const auto about = nb::cast<nb::dict>(one);
    tune::GivenTrial& trial = trials.emplace_back();
    take_item(about, "raw", trial.raw);
    take_item(about, "config", trial.config);
    if (!about.contains("state")) continue;
    int state = 0;
    tune::Told told{.tries = 0};
    take_item(about, "state", state);
    take_item(about, "values", told.values);
    take_item(about, "violation", told.violation);
    take_item(about, "returned", told.returned);
    take_item(about, "metrics", told.metrics);
    take_item(about, "error", told.error);
    told.state = static_cast<tune::TrialState>(state);
    trial.told = std::move(told);
  }
  std::shared_ptr<Study> study = open.use();
  const Unlock unlock;
  return std::exchange(study, nullptr)->add(trials);
}

nb::list workers(const OpenStudy& open) {
  std::vector<tune::WorkerRecord> found;
  {
    // An ask() that has the study's lock may wait for the interpreter's, to make a configuration.
    std::shared_ptr<Study> study = open.use();
    const Unlock unlock;
    found = std::exchange(study, nullptr)->workers();
  }
  nb::list list;
  for (const tune::WorkerRecord& one : found) {
    nb::dict about;
    about["id"] = one.id;
    about["host"] = one.host;
    about["process"] = one.process;
    about["joined"] = one.joined;
    about["seen"] = one.seen;
    about["left"] = one.left;
    about["alive"] = one.alive;
    list.append(about);
  }
  return list;
}

// Calls a method of Study without the interpreter's lock.
template <auto Method>
auto unlocked() {
  return []<class... Args>(const OpenStudy& open, Args... args) {
    std::shared_ptr<Study> study = open.use();
    const Unlock unlock;
    return ((*std::exchange(study, nullptr)).*Method)(args...);
  };
}

void add_trial_class(nb::module_& m) {
  nb::class_<TrialRecord>(m, "TuneTrial")
      .def_ro("id", &TrialRecord::id)
      .def_prop_ro("stage",
                   [](const TrialRecord& one) { return std::string(stage_name(one.stage)); })
      .def_prop_ro("by_user",
                   [](const TrialRecord& one) { return one.origin == tune::Origin::kUser; })
      .def_ro("raw", &TrialRecord::raw)
      .def_ro("values", &TrialRecord::values)
      .def_ro("violation", &TrialRecord::violation)
      .def_ro("attempt", &TrialRecord::attempt)
      .def_ro("tries", &TrialRecord::tries)
      .def_ro("worker", &TrialRecord::worker)
      .def_ro("started", &TrialRecord::started)
      .def_ro("ended", &TrialRecord::ended)
      .def_ro("config", &TrialRecord::config)
      .def_ro("returned", &TrialRecord::returned)
      .def_ro("metrics", &TrialRecord::metrics)
      .def_ro("error", &TrialRecord::error)
      .def_ro("reports", &TrialRecord::reports)
      .def_ro("changed", &TrialRecord::changed);
}

}  // namespace

void add_study(nb::module_& m) {
  add_trial_class(m);
  nb::class_<OpenStudy>(m, "TuneStudy")
      .def_static("open", &open_study)
      .def_static("load", &load_study)
      .def_static("list", &list_studies)
      .def_static("remove", &remove_study)
      .def("close", &OpenStudy::close)
      .def("spec", [](const OpenStudy& open) { return spec_dict(open.use()->spec()); })
      .def("url", [](const OpenStudy& open) { return open.use()->url(); })
      .def("ask", &ask, nb::arg(), nb::arg().none())
      .def("tell",
           [](const OpenStudy& open, std::uint64_t id, int state, std::vector<double> values,
              double violation, std::string returned, std::string metrics, std::string error,
              int tries) {
             std::shared_ptr<Study> study = open.use();
             const Unlock unlock;
             std::exchange(study, nullptr)
                 ->tell(id, told_of(state, std::move(values), violation, std::move(returned),
                                    std::move(metrics), std::move(error), tries));
           })
      .def("begin_try", [](const OpenStudy& open, std::uint64_t id,
                           int number) { unlocked<&Study::begin_try>()(open, id, number); })
      .def("report", [](const OpenStudy& open, std::uint64_t id, std::int64_t step,
                        double value) { unlocked<&Study::report>()(open, id, step, value); })
      .def("give_back",
           [](const OpenStudy& open, std::uint64_t id) { unlocked<&Study::give_back>()(open, id); })
      .def("add", &add)
      .def("refresh", [](const OpenStudy& open) { return unlocked<&Study::refresh>()(open); })
      .def("trials", [](const OpenStudy& open) { return unlocked<&Study::trials>()(open); })
      .def("trials_since",
           [](const OpenStudy& open, std::uint64_t change) {
             return unlocked<&Study::trials_since>()(open, change);
           })
      .def("trial", [](const OpenStudy& open,
                       std::uint64_t id) { return unlocked<&Study::trial>()(open, id); })
      .def("best", [](const OpenStudy& open) { return unlocked<&Study::best>()(open); })
      .def("size", [](const OpenStudy& open) { return unlocked<&Study::size>()(open); })
      .def("workers", &workers)
      .def("worker", [](const OpenStudy& open) { return unlocked<&Study::worker>()(open); })
      .def("sync", [](const OpenStudy& open) { unlocked<&Study::sync>()(open); })
      .def("syncs_and_commits",
           [](const OpenStudy& open) { return unlocked<&Study::syncs_and_commits>()(open); });
  m.def("tune_space_text", &tune::space_text);
}

}  // namespace divisi::python
