#include "serial.h"

#include "interpreter.h"
#include "rl/serial_dqn.h"

#include <chrono>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace divisi::python {
namespace {

// Lets Python run its signal handlers now and then; what one raises ends the run.
class SignalCheck {
 public:
  void operator()() {
    constexpr auto kEvery =
        std::chrono::milliseconds(50);  // nobody feels that, and it costs nothing
    const auto now = std::chrono::steady_clock::now();
    if (now < due_) return;
    due_ = now + kEvery;
    const Lock lock;
    check(PyErr_CheckSignals());
  }

 private:
  std::chrono::steady_clock::time_point due_{};
};

using Outcome = std::tuple<bool, std::int64_t, std::int64_t, std::vector<double>>;

// `report` is called with (env_step, train_iter, returns) of each evaluation.
Outcome serial_dqn(const std::string& config_json, std::int64_t max_train_iter,
                   const std::string& best_checkpoint, const std::string& last_checkpoint,
                   nb::callable report) {
  rl::SerialOptions options{.config = {},
                            .max_train_iter = max_train_iter,
                            .best_checkpoint = best_checkpoint,
                            .last_checkpoint = last_checkpoint,
                            .on_evaluation = {},
                            .on_step = SignalCheck()};
  options.config.load_json(config_json, "serial_dqn");
  options.on_evaluation = [report](const rl::SerialEvaluation& evaluation) {
    const Lock lock;
    const nb::object returns = nb::cast(evaluation.returns);
    Object::steal(checked(
        PyObject_CallFunction(report.ptr(), "LLO", static_cast<long long>(evaluation.env_step),
                              static_cast<long long>(evaluation.train_iter), returns.ptr())));
  };
  rl::SerialResult result;
  {
    const Unlock unlock;
    result = rl::train_serially(options);
  }
  return {result.solved, result.env_step, result.train_iter, std::move(result.last.returns)};
}

}  // namespace

void add_serial(nb::module_& m) {
  m.def("serial_config",
        [](const std::string& document) { return rl::read_serial_config(document).to_json(); });
  m.def("serial_dqn", &serial_dqn);
}

}  // namespace divisi::python
