// DIJobs for tests, as YAML in one line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace divisi::dijob::testing {

inline constexpr const char* kPodTemplate =
    "{spec: {containers: [{name: di-container, image: busybox}]}}";

// "{type: collector, replicas: 2, template: ..., <more>}"; none-typed ones bring their names in
// `more`.
inline std::string task(const std::string& type, int replicas, const std::string& more = {}) {
  return fmt::format("{{type: {}, replicas: {}, template: {}{}{}}}", type, replicas, kPodTemplate,
                     more.empty() ? "" : ", ", more);
}

inline std::string tasks_job(const std::vector<std::string>& tasks, const std::string& more = {},
                             const std::string& name = "j") {
  std::string list;
  for (const std::string& each : tasks) list += (list.empty() ? "" : ", ") + each;
  return fmt::format("{{metadata: {{name: {}}}, spec: {{tasks: [{}]{}{}}}}}", name, list,
                     more.empty() ? "" : ", ", more);
}

// The job of most acceptance items: a learner, an evaluator, two collectors.
inline std::string usual_job(const std::string& more = {}) {
  return tasks_job({task("learner", 1), task("evaluator", 1), task("collector", 2)}, more);
}

inline std::string sized(int learners, int evaluators, int collectors) {
  return fmt::format("{{spec: {{tasks: [{}, {}, {}]}}}}", task("learner", learners),
                     task("evaluator", evaluators), task("collector", collectors));
}

inline std::string template_job(const std::string& more, const std::string& name = "g") {
  return fmt::format("{{metadata: {{name: {}}}, spec: {{template: {}{}{}}}}}", name, kPodTemplate,
                     more.empty() ? "" : ", ", more);
}

}  // namespace divisi::dijob::testing
