#include "prune.h"

#include "divisi/error.h"
#include "divisi/importance.h"
#include "divisi/pbt.h"
#include "divisi/pruner.h"
#include "divisi/regret.h"
#include "divisi/scalar_reader.h"
#include "interpreter.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace divisi::python {
namespace {

using tune::Pruner;

template <class T>
void option(const nb::dict& from, const char* name, T& to) {
  if (from.contains(name)) to = nb::cast<T>(from[name]);
}

Pruner percentile_pruner(double percentile, const nb::dict& from) {
  tune::PercentileOptions options;
  option(from, "startup_trials", options.startup_trials);
  option(from, "warmup_steps", options.warmup_steps);
  option(from, "interval_steps", options.interval_steps);
  option(from, "min_trials", options.min_trials);
  option(from, "count_ended", options.count_ended);
  return Pruner::percentile(percentile, options);
}

Pruner halving_pruner(const nb::dict& from) {
  tune::HalvingOptions options;
  option(from, "min_resource", options.min_resource);
  option(from, "reduction_factor", options.reduction_factor);
  option(from, "min_early_stopping_rate", options.min_early_stopping_rate);
  option(from, "bootstrap_count", options.bootstrap_count);
  return Pruner::successive_halving(options);
}

Pruner hyperband_pruner(const nb::dict& from) {
  tune::HyperbandOptions options;
  option(from, "min_resource", options.min_resource);
  option(from, "max_resource", options.max_resource);
  option(from, "reduction_factor", options.reduction_factor);
  option(from, "bootstrap_count", options.bootstrap_count);
  return Pruner::hyperband(options);
}

Pruner threshold_pruner(const nb::dict& from) {
  tune::ThresholdOptions options;
  option(from, "lower", options.lower);
  option(from, "upper", options.upper);
  option(from, "warmup_steps", options.warmup_steps);
  option(from, "interval_steps", options.interval_steps);
  return Pruner::threshold(options);
}

Pruner patience_pruner(const nb::dict& from, const Pruner* other) {
  tune::PatienceOptions options;
  option(from, "patience", options.patience);
  option(from, "min_delta", options.min_delta);
  return other == nullptr ? Pruner::patience(options) : Pruner::patience(options, *other);
}

// A list of (tag, step, value, time).
nb::list read(ScalarReader& reader) {
  std::vector<Scalar> scalars;
  {
    const Unlock unlock;
    scalars = reader.read();
  }
  nb::list rows;
  for (const Scalar& one : scalars) {
    // A tag is what somebody wrote: not always text.
    const auto size = static_cast<Py_ssize_t>(one.tag.size());
    const nb::object tag =
        nb::steal(checked(PyUnicode_DecodeUTF8(one.tag.data(), size, "replace")));
    rows.append(nb::make_tuple(tag, one.step, one.value, one.time));
  }
  return rows;
}

std::vector<double> importance_of(const std::vector<tune::Space>& spaces,
                                  const std::vector<std::vector<double>>& points,
                                  const std::vector<double>& values, bool divergence,
                                  const nb::dict& from) {
  tune::ImportanceOptions options;
  if (divergence) options.method = tune::ImportanceMethod::kDivergence;
  option(from, "maximize", options.maximize);
  option(from, "trees", options.trees);
  option(from, "best_share", options.best_share);
  option(from, "seed", options.seed);
  option(from, "normalize", options.normalize);
  const Unlock unlock;
  return tune::importance(spaces, points, values, options);
}

double regret_of(const std::vector<tune::Space>& spaces,
                 const std::vector<std::vector<double>>& points, const std::vector<double>& values,
                 bool maximize) {
  const Unlock unlock;
  return tune::estimated_regret(spaces, points, values, {.maximize = maximize});
}

void make_pbt(tune::Pbt* self, const std::vector<tune::Space>& spaces, const nb::dict& from) {
  tune::PbtOptions options;
  option(from, "population", options.population);
  option(from, "generations", options.generations);
  option(from, "maximize", options.maximize);
  option(from, "quantile", options.quantile);
  option(from, "resample", options.resample);
  option(from, "seed", options.seed);
  new (self) tune::Pbt(spaces, options);
}

// (id, member, generation, values, parent)
nb::object ask_pbt(tune::Pbt& pbt) {
  const std::optional<tune::PbtSegment> segment = pbt.ask();
  if (!segment) return nb::none();
  return nb::make_tuple(segment->id, segment->member, segment->generation, segment->values,
                        segment->parent);
}

}  // namespace

void add_prune(nb::module_& m) {
  nb::class_<Pruner>(m, "TunePruner")
      .def_static("none", &Pruner::none)
      .def_static("percentile", &percentile_pruner)
      .def_static("halving", &halving_pruner)
      .def_static("hyperband", &hyperband_pruner)
      .def_static("threshold", &threshold_pruner)
      .def_static("patience", &patience_pruner, nb::arg(), nb::arg().none())
      .def("anew", &Pruner::anew)
      .def("report", &Pruner::report)
      .def("should_prune", &Pruner::should_prune)
      .def("finish", [](Pruner& pruner, std::uint64_t id, int state) {
        pruner.finish(id, static_cast<tune::TrialState>(state));
      });
  nb::class_<ScalarReader>(m, "ScalarReader").def(nb::init<std::string>()).def("read", &read);
  nb::class_<tune::Pbt>(m, "TunePbt")
      .def("__init__", &make_pbt)
      .def("ask", &ask_pbt)
      .def("tell", &tune::Pbt::tell)
      .def("done", &tune::Pbt::done)
      .def("needed", &tune::Pbt::needed);
  m.def("tune_regret", &regret_of, nb::arg(), nb::arg(), nb::arg(), nb::arg());
  m.def("tune_importance", &importance_of, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg());
}

}  // namespace divisi::python
