// FirstOperatorTest: one operator, a cluster whose pods do nothing by themselves, and jobs of the
// first generation.
#pragma once

#include "dijob/first/pod.h"
#include "dijob/testing/first_server.h"
#include "dijob/testing/operator_fixture.h"

#include <gtest/gtest.h>

#include <string>

namespace divisi::dijob::testing {

// "{metadata: {name: j}, spec: {coordinator: ..., collector: ..., learner: ..., <more>}}"
inline std::string first_job(const std::string& more = {}, const std::string& name = "j") {
  return fmt::format(
      "{{metadata: {{name: {0}}}, spec: {{coordinator: {{template: {1}}}, collector: {{template: "
      "{1}}}, learner: {{template: {1}}}{2}{3}}}}}",
      name, kPodTemplate, more.empty() ? "" : ", ", more);
}

inline std::string serial_job(const std::string& name = "j") {
  return fmt::format("{{metadata: {{name: {}}}, spec: {{coordinator: {{template: {}}}}}}}", name,
                     kPodTemplate);
}

class FirstOperatorTest : public OperatorTest {
 protected:
  static constexpr const char* kCoordinator = "j-coordinator";

  std::string add(first::Role role) { return server.add("j", role); }
  std::string add_running(first::Role role) {
    std::string name = add(role);
    cluster.kubelet.run(in_default(name));
    return name;
  }
  // A job whose coordinator runs.
  void create_first(const std::string& yaml = first_job()) {
    create(yaml);
    cluster.kubelet.run(in_default(kCoordinator));
    cluster.settle();
    ASSERT_EQ(cluster.phase("j"), "Running");
  }
  void succeed_coordinator() {
    cluster.kubelet.succeed(in_default(kCoordinator));
    cluster.settle();
    ASSERT_EQ(cluster.phase("j"), "Succeeded");
  }
  // "active succeeded failed" of that role; "none" when the status has no such key.
  std::string counts(const std::string& role) const {
    const json::Value job = cluster.job("j");
    const json::Value* const found = job.find_path({"status", "replicaStatus", role});
    if (found == nullptr) return "none";
    const auto number = [&](std::string_view key) { return found->int_at({key}).value_or(0); };
    return fmt::format("{} {} {}", number("active"), number("succeeded"), number("failed"));
  }
  Names ports_of(const std::string& service) const {
    const json::Value* const found = cluster.api.store.find(kServices, in_default(service));
    Names ports;
    if (found == nullptr) return ports;
    for (const json::Value& port : *found->find_path({"spec", "ports"})->as_array()) {
      ports.push_back(
          fmt::format("{}={}", port.string_at({"name"}), port.int_at({"port"}).value_or(0)));
    }
    return ports;
  }
  void delete_service(const std::string& name) {
    cluster.api.store.remove(kServices, in_default(name));
    cluster.api.changed();
  }
  std::string condition(std::string_view type) const {
    return std::string(cluster.condition("j", type).string_at({"status"}));
  }
  bool same_names() const { return cluster.pod_names("j") == cluster.services("j"); }

  FirstServer server{cluster};
};

}  // namespace divisi::dijob::testing
