#include "tune.h"

#include "divisi/error.h"
#include "divisi/sampler.h"
#include "interpreter.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace divisi::python {
namespace {

using tune::Sampler;
using tune::SearchSpace;
using tune::Space;

// 32 bits of a Python generator (`getrandbits`), from a thread that does not hold the interpreter's
// lock.
tune::RandomWords words_of(nb::handle getrandbits) {
  auto held = std::make_shared<Object>(Object::share(getrandbits.ptr()));
  return [held]() -> std::uint32_t {
    const Lock lock;
    const Object drawn = Object::steal(checked(PyObject_CallFunction(held->get(), "i", 32)));
    const unsigned long bits = PyLong_AsUnsignedLong(drawn.get());
    if (PyErr_Occurred() != nullptr) throw PythonError();
    return static_cast<std::uint32_t>(bits);
  };
}

Sampler grid_sampler(const SearchSpace& space, std::optional<std::int64_t> max_steps,
                     bool by_length, bool strict_budget) {
  return Sampler::grid(
      space, {.max_steps = max_steps,
              .allocation = by_length ? tune::Allocation::kLength : tune::Allocation::kBalanced,
              .strict_budget = strict_budget});
}

// `source`: a list of seed words, or a bound method getrandbits.
Sampler random_sampler(const SearchSpace& space, std::optional<std::int64_t> max_steps,
                       nb::object source) {
  tune::RandomOptions options{.max_steps = max_steps};
  if (nb::isinstance<nb::list>(source)) {
    options.words = tune::python_random(nb::cast<std::vector<std::uint32_t>>(source));
  } else {
    options.words = words_of(source);
  }
  return Sampler::random(space, std::move(options));
}

template <class T>
void take(const nb::dict& from, const char* name, T& to) {
  if (from.contains(name)) to = nb::cast<T>(from[name]);
}

// `options` has the names of BayesOptions; enumerations are numbers.
Sampler bayes_sampler(const SearchSpace& space, const nb::dict& from) {
  tune::BayesOptions options;
  int acquisition = static_cast<int>(options.acquisition);
  int pending = static_cast<int>(options.pending);
  take(from, "max_steps", options.max_steps);
  take(from, "maximize", options.maximize);
  take(from, "init_steps", options.init_steps);
  take(from, "reference_engine", options.reference_engine);
  take(from, "acquisition", acquisition);
  take(from, "kappa", options.kappa);
  take(from, "kappa_decay", options.kappa_decay);
  take(from, "kappa_decay_delay", options.kappa_decay_delay);
  take(from, "xi", options.xi);
  take(from, "noise", options.noise);
  take(from, "restarts", options.restarts);
  take(from, "pending", pending);
  take(from, "impute_failures", options.impute_failures);
  take(from, "seed", options.seed);
  options.acquisition = static_cast<tune::Acquisition>(acquisition);
  options.pending = static_cast<tune::Lie>(pending);
  return Sampler::bayes(space, options);
}

// `options` has the names of TpeOptions.
Sampler tpe_sampler(const SearchSpace& space, const nb::dict& from) {
  tune::TpeOptions options;
  take(from, "max_steps", options.max_steps);
  take(from, "maximize", options.maximize);
  take(from, "n_startup", options.n_startup);
  take(from, "n_candidates", options.n_candidates);
  take(from, "gamma", options.gamma);
  take(from, "max_good", options.max_good);
  take(from, "prior_weight", options.prior_weight);
  take(from, "constant_liar", options.constant_liar);
  take(from, "impute_failures", options.impute_failures);
  take(from, "seed", options.seed);
  return Sampler::tpe(space, options);
}

Sampler qmc_sampler(const SearchSpace& space, std::optional<std::int64_t> max_steps,
                    std::uint64_t seed) {
  return Sampler::qmc(space, {.max_steps = max_steps, .seed = seed});
}

// Each condition: the place of a space, the place of its parent, the parent's indices.
using ConditionTuple = std::tuple<std::size_t, std::size_t, std::vector<std::int64_t>>;

void make_search_space(SearchSpace* place, const std::vector<Space>& spaces,
                       const std::vector<ConditionTuple>& conditions) {
  std::vector<tune::Condition> rules;
  for (const auto& [dimension, parent, indices] : conditions) {
    rules.push_back({dimension, parent, indices});
  }
  new (place) SearchSpace(spaces, std::move(rules));
}

std::pair<std::string, std::string> choose(const SearchSpace& space,
                                           std::optional<std::int64_t> max_steps) {
  tune::AlgorithmChoice choice = tune::choose_algorithm(space, max_steps);
  return {std::move(choice.name), std::move(choice.reason)};
}

std::vector<tune::Direction> directions_of(const std::vector<bool>& maximize) {
  std::vector<tune::Direction> directions;
  for (const bool larger : maximize) {
    directions.push_back(larger ? tune::Direction::kMaximize : tune::Direction::kMinimize);
  }
  return directions;
}

// `options` has the names of CmaesOptions.
Sampler cmaes_sampler(const SearchSpace& space, const nb::dict& from) {
  tune::CmaesOptions options;
  take(from, "max_steps", options.max_steps);
  take(from, "maximize", options.maximize);
  take(from, "population_size", options.population_size);
  take(from, "sigma0", options.sigma0);
  take(from, "active", options.active);
  take(from, "restarts", options.restarts);
  take(from, "seed", options.seed);
  return Sampler::cmaes(space, options);
}

// `options` has the names of Nsga2Options; "maximize" stands for the directions.
Sampler nsga2_sampler(const SearchSpace& space, const nb::dict& from) {
  tune::Nsga2Options options;
  std::vector<bool> maximize;
  take(from, "max_steps", options.max_steps);
  take(from, "maximize", maximize);
  take(from, "population_size", options.population_size);
  take(from, "crossover_probability", options.crossover_probability);
  take(from, "crossover_index", options.crossover_index);
  take(from, "mutation_probability", options.mutation_probability);
  take(from, "mutation_index", options.mutation_index);
  take(from, "seed", options.seed);
  options.directions = directions_of(maximize);
  return Sampler::nsga2(space, std::move(options));
}

std::optional<std::pair<std::uint64_t, std::vector<double>>> ask(Sampler& sampler) {
  std::optional<tune::Sample> sample;
  {
    const Unlock unlock;
    sample = sampler.ask();
  }
  if (!sample) return std::nullopt;
  return std::pair(sample->id, std::move(sample->values));
}

void tell(Sampler& sampler, std::uint64_t id, int state, double value) {
  const Unlock unlock;
  sampler.tell(id, static_cast<tune::TrialState>(state), value);
}

void tell_values(Sampler& sampler, std::uint64_t id, int state, std::vector<double> values,
                 double violation) {
  const Unlock unlock;
  sampler.tell(id, {.state = static_cast<tune::TrialState>(state),
                    .values = std::move(values),
                    .violation = violation});
}

std::vector<std::uint64_t> ids_of(const tune::ParetoFront& front) {
  std::vector<std::uint64_t> ids;
  for (const tune::ParetoFront::Member& member : front.members()) ids.push_back(member.id);
  return ids;
}

}  // namespace

void add_tune(nb::module_& m) {
  nb::class_<Space>(m, "TuneSpace")
      .def_static("continuous", &Space::continuous)
      .def_static("separate", &Space::separate)
      .def_static("fixed", &Space::fixed)
      .def("lower", &Space::lower)
      .def("upper", &Space::upper)
      .def("step", &Space::step)
      .def("length", &Space::length)
      .def("count", &Space::count)
      .def("at", &Space::at)
      .def("spread", &Space::spread)
      .def("coordinate_bounds", &Space::coordinate_bounds)
      .def("at_coordinate", &Space::at_coordinate);
  nb::class_<SearchSpace>(m, "TuneSearchSpace")
      .def("__init__", &make_search_space)
      .def(nb::init_implicit<std::vector<Space>>());
  m.def("tune_choose", &choose, nb::arg(), nb::arg().none());
  nb::class_<Sampler>(m, "TuneSampler")
      .def_static("grid", &grid_sampler, nb::arg(), nb::arg().none(), nb::arg(), nb::arg())
      .def_static("random", &random_sampler, nb::arg(), nb::arg().none(), nb::arg())
      .def_static("bayes", &bayes_sampler)
      .def_static("tpe", &tpe_sampler)
      .def_static("qmc", &qmc_sampler, nb::arg(), nb::arg().none(), nb::arg())
      .def_static("cmaes", &cmaes_sampler)
      .def_static("nsga2", &nsga2_sampler)
      .def("ask", &ask)
      .def("tell", &tell)
      .def("tell_values", &tell_values)
      .def("objectives", &Sampler::objectives)
      .def("pending", &Sampler::pending);
  nb::class_<tune::ParetoFront>(m, "TuneParetoFront")
      .def("__init__",
           [](tune::ParetoFront* front, const std::vector<bool>& maximize) {
             new (front) tune::ParetoFront(directions_of(maximize));
           })
      .def("insert", &tune::ParetoFront::insert)
      .def("ids", &ids_of)
      .def("hypervolume", &tune::ParetoFront::hypervolume);
  m.def(
      "tune_table",
      [](const std::vector<std::string>& headers, const std::vector<std::vector<tune::Cell>>& rows,
         bool grid) {
        return tune::format_table(headers, rows,
                                  grid ? tune::TableStyle::kGrid : tune::TableStyle::kPsql);
      },
      nb::arg(), nb::arg(), nb::arg());
}

}  // namespace divisi::python
