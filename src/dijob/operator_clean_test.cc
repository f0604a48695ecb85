// cleanPodPolicy: what is left of a job that is over, for both forms.
#include "dijob/testing/operator_fixture.h"

namespace divisi::dijob::testing {
namespace {

// Ends a pod as its letter says: Running, Failed, Succeeded, Pending.
void put(SimCluster& cluster, const std::string& pod, char letter) {
  const std::string key = in_default(pod);
  if (letter == 'R') cluster.kubelet.run(key);
  if (letter == 'F') cluster.kubelet.fail(key);
  if (letter == 'S') cluster.kubelet.succeed(key);
}

struct Case {
  std::string letters;  // of the four pods
  std::size_t running;  // how many of them the policy Running takes away
};

// What is left, of a job whose four pods get these phases all at once.
void expect_cleaned(const std::string& yaml, const std::string& job, const Names& pods,
                    const Case& each, const std::string& policy) {
  SCOPED_TRACE(each.letters + " with " + policy);
  SimCluster cluster(5);
  cluster.kubelet.automatic = false;
  cluster.start_operator();
  cluster.create_job(yaml);
  cluster.settle();
  ASSERT_EQ(cluster.phase(job), "Starting");
  for (std::size_t i = 0; i < pods.size(); ++i) put(cluster, pods[i], each.letters[i]);
  cluster.settle();
  EXPECT_EQ(cluster.phase(job), each.letters == "SSSS" ? "Succeeded" : "Failed");
  std::size_t left = pods.size();
  if (policy == "All") left = 0;
  if (policy == "Running") left -= each.running;
  EXPECT_EQ(cluster.pods(job).size(), left);
  EXPECT_TRUE(cluster.services(job).empty());
  EXPECT_EQ(cluster.status(job, "readyReplicas"), 0);
  EXPECT_EQ(cluster.job(job).find_path({"status", "taskStatus"}), nullptr);
}

const std::vector<Case> kCases{{"RRFS", 2}, {"FFFS", 0}, {"RRRF", 3},
                               {"FFFF", 0}, {"SSSS", 0}, {"PRSF", 2}};

TEST(OperatorCleanTest, O051_PodsGoByThePolicyAndServicesAlways) {
  const Names pods{"j-learner-0", "j-evaluator-0", "j-collector-0", "j-collector-1"};
  for (const char* policy : {"All", "None", "Running"}) {
    for (const Case& each : kCases) {
      expect_cleaned(usual_job(fmt::format("backoffLimit: 0, cleanPodPolicy: {}", policy)), "j",
                     pods, each, policy);
    }
  }
}

TEST(OperatorCleanTest, O076_TheTemplateFormIsCleanedTheSameWay) {
  const Names pods{"g-0-0", "g-0-1", "g-0-2", "g-0-3"};
  for (const char* policy : {"All", "None", "Running"}) {
    for (const Case& each : kCases) {
      expect_cleaned(template_job(fmt::format("minReplicas: 4, cleanPodPolicy: {}", policy)), "g",
                     pods, each, policy);
    }
  }
}

TEST(OperatorCleanTest, O051_RunningIsThePolicyOfJobsThatNameNone) {
  expect_cleaned(usual_job("backoffLimit: 0"), "j",
                 {"j-learner-0", "j-evaluator-0", "j-collector-0", "j-collector-1"}, {"RRFS", 2},
                 "Running");
}

}  // namespace
}  // namespace divisi::dijob::testing
