// Jobs for tests, written as users write them.
#pragma once

#include "dijob/job.h"
#include "dijob/pod.h"
#include "json/yaml.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

inline json::Value yaml(std::string_view text) {
  auto value = json::parse_yaml_one(text);
  EXPECT_TRUE(value.has_value()) << (value ? "" : value.error().message());
  return value ? *value : json::Value();
}

// A DIJob named `job` in `rl`, with this spec.
inline json::Value job_object(std::string_view spec) {
  json::Value object =
      json::Object{{"apiVersion", "diengine.opendilab.org/v2alpha1"}, {"kind", "DIJob"}};
  object["metadata"] = json::Object{{"name", "job"},
                                    {"namespace", "rl"},
                                    {"uid", "5f0e8a4c-0000-4000-8000-000000000001"},
                                    {"generation", 1},
                                    {"creationTimestamp", "2026-11-15T10:00:00Z"}};
  object["spec"] = yaml(spec);
  return object;
}

inline Job job_from(const json::Value& object) {
  auto job = read_job(object);
  EXPECT_TRUE(job.has_value()) << (job ? "" : job.error().message());
  return job ? *std::move(job) : Job();
}
inline Job job_of(std::string_view spec) {
  return job_from(job_object(spec));
}

// One learner, one evaluator, `collectors` collectors, each with one container.
inline std::string three_tasks(int learners, int evaluators, int collectors) {
  const auto task = [](std::string_view type, int replicas) {
    return fmt::format(
        "- {{type: {}, replicas: {}, template: {{spec: {{containers: [{{name: di-container, image: "
        "a}}]}}}}}}\n",
        type, replicas);
  };
  return "tasks:\n" + task("learner", learners) + task("evaluator", evaluators) +
         task("collector", collectors);
}

// Every replica in the order of the tasks, as the operator numbers a new job.
inline std::vector<Slot> slots_of(const Job& job) {
  std::vector<Slot> slots;
  for (const Task& task : job.tasks) {
    for (int index = 0; index < task.replicas; ++index) {
      slots.push_back({task.name, index, static_cast<int>(slots.size())});
    }
  }
  return slots;
}

inline std::vector<json::Value> pods_of(const Job& job, const ClusterNames& names = {}) {
  std::vector<json::Value> pods;
  const std::vector<Slot> all = slots_of(job);
  const PodMaker maker(
      job, {.all = all, .replicas = static_cast<int>(all.size()), .generation = 0, .names = names});
  for (const Slot& slot : all) pods.push_back(maker.make({.slot = slot}));
  return pods;
}

// The value of a variable in a container; "(unset)" without.
inline std::string variable(const json::Value& pod, std::string_view name,
                            std::string_view list = "containers", std::size_t container = 0) {
  const json::Value* containers = pod.find_path({"spec", list});
  if (containers == nullptr || containers->as_array() == nullptr) return "(no containers)";
  const json::Value* env = containers->as_array()->at(container).find("env");
  if (env == nullptr || env->as_array() == nullptr) return "(unset)";
  for (const json::Value& entry : *env->as_array()) {
    if (entry.string_at({"name"}) == name) return std::string(entry.string_at({"value"}));
  }
  return "(unset)";
}

}  // namespace divisi::dijob
