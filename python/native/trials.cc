#include "trials.h"

#include "divisi/detail/trial_cluster.h"
#include "interpreter.h"

#include <chrono>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <string>

namespace nb = nanobind;

namespace divisi::python {
namespace {

using detail::ClusterEvent;
using detail::ClusterFile;
using detail::ClusterTrial;
using detail::FoundObject;
using detail::TrialCluster;

// A century: longer than anybody waits, and no overflow.
constexpr double kLongest = 3e9;

std::chrono::nanoseconds seconds(double count) {
  if (!(count > 0)) return {};  // also of nan
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(count, kLongest)));
}

void open(TrialCluster* self, const std::string& yaml, const std::string& yaml_name,
          const std::string& remote_path, const std::string& context, const std::string& space,
          const std::string& reporter) {
  const Unlock unlock;
  new (self) TrialCluster({.yaml = yaml,
                           .yaml_name = yaml_name,
                           .remote_path = remote_path,
                           .reporter = reporter,
                           .context = context,
                           .space = space});
}

void watch(TrialCluster& cluster, const std::string& project, double poll_every, double lost_after,
           double time_out, bool require_exit_zero, const std::vector<std::string>& names) {
  const Unlock unlock;
  cluster.watch({.project = project,
                 .poll_every = seconds(poll_every),
                 .lost_after = seconds(lost_after),
                 .time_out = seconds(time_out),
                 .require_exit_zero = require_exit_zero,
                 .result_names = names});
}

std::optional<ClusterEvent> next(TrialCluster& cluster, double within) {
  const Unlock unlock;
  return cluster.next(seconds(within));
}

bool wait_until_gone(TrialCluster& cluster, double within) {
  const Unlock unlock;
  return cluster.wait_until_gone(seconds(within));
}

nb::object file_of(const std::optional<ClusterFile>& file) {
  if (!file) return nb::none();
  return nb::make_tuple(file->path, nb::bytes(file->bytes.data(), file->bytes.size()));
}

ClusterTrial trial_of(const std::string& name, const std::string& trial, const std::string& task,
                      const std::string& study, const std::string& config,
                      const std::string& main_file) {
  return {name, trial, task, study, config, main_file};
}

}  // namespace

void add_trials(nb::module_& m) {
  nb::class_<FoundObject>(m, "TrialObject")
      .def_ro("kind", &FoundObject::kind)
      .def_ro("name", &FoundObject::name)
      .def_ro("project", &FoundObject::project)
      .def_ro("config", &FoundObject::config)
      .def_ro("trial", &FoundObject::trial);
  nb::class_<ClusterEvent>(m, "TrialEvent")
      .def_ro("kind", &ClusterEvent::kind)
      .def_ro("name", &ClusterEvent::name)
      .def_ro("status", &ClusterEvent::status)
      .def_ro("text", &ClusterEvent::text)
      .def_prop_ro(
          "lines",
          [](const ClusterEvent& event) { return nb::bytes(event.text.data(), event.text.size()); })
      .def_prop_ro("result", [](const ClusterEvent& event) { return file_of(event.result); })
      .def_prop_ro("side", [](const ClusterEvent& event) { return file_of(event.side); });
  nb::class_<TrialCluster>(m, "TrialCluster")
      .def("__init__", &open)
      .def("name", &TrialCluster::name)
      .def("remote_path", &TrialCluster::remote_path)
      .def("pod_name", &TrialCluster::pod_name)
      .def("check_names", &TrialCluster::check_names)
      .def("job_file",
           [](const TrialCluster& cluster, const std::string& name, const std::string& trial,
              const std::string& task, const std::string& study, const std::string& config,
              const std::string& main_file) {
             return cluster.job_file(trial_of(name, trial, task, study, config, main_file));
           })
      .def("found", &TrialCluster::found)
      .def("watch", &watch)
      .def("post", &TrialCluster::post)
      .def("run",
           [](TrialCluster& cluster, const std::string& name, const std::string& trial,
              const std::string& task, const std::string& study, const std::string& config,
              const std::string& main_file) {
             cluster.run(trial_of(name, trial, task, study, config, main_file));
           })
      .def("adopt", &TrialCluster::adopt)
      .def("discard", &TrialCluster::discard)
      .def("judge", &TrialCluster::judge)
      .def("cancel", &TrialCluster::cancel)
      .def("next", &next)
      .def("wait_until_gone", &wait_until_gone);
}

}  // namespace divisi::python
