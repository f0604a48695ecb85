#include "trials/job_template.h"

#include "json/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::trials {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kTemplate = R"(
var1: &name cartpole
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: *name
  projectPath: /mnt/hpo/
spec:
  tasks:
  - name: serial
    type: none
    template:
      spec:
        containers:
        - name: di-container
          image: ding
          env:
          - {name: JOB_NAME, value: *name}
          - {name: HPO_PROJECT, value: mine}
          volumeMounts:
          - {name: config-py, mountPath: /etc/config}
          - {name: lustre, mountPath: /mnt}
        volumes:
        - name: config-py
          configMap: {name: config-py-}
        - name: lustre
          hostPath: {path: /lustre}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-py-}
data:
  config.py: |

)";

std::string replaced(std::string_view from, std::string_view to) {
  std::string text(kTemplate);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Result<JobTemplate> parsed(std::string_view text = kTemplate, std::string_view remote = {}) {
  return JobTemplate::parse(text, "t.yml", remote);
}

TrialSpec trial(std::string main_file = "print(1)\n") {
  return {.name = "cartpole-7",
          .trial = "3",
          .task = "7",
          .project = "cartpole",
          .study = "s",
          .run = "r",
          .config = "c",
          .main_file = std::move(main_file)};
}

TEST(JobTemplateTest, H096TheFilledDocumentsHaveTheTaskNameAndTheMainFile) {
  const auto jobs = parsed();
  ASSERT_TRUE(jobs) << jobs.error().message();
  const std::string main_file = "a = \"q\\n: |\"\n\tb\n\n# \xE8\xA1\xA8\n";
  const auto made = jobs->fill(trial(main_file));
  ASSERT_TRUE(made);
  const auto documents = json::parse_yaml(made->yaml());
  ASSERT_TRUE(documents) << documents.error().message();
  ASSERT_EQ(documents->size(), 2U);
  EXPECT_EQ((*documents)[0], made->job);
  EXPECT_EQ((*documents)[0].string_at({"metadata", "name"}), "cartpole-7");
  EXPECT_EQ((*documents)[1].string_at({"metadata", "name"}), "config-py-cartpole-7");
  EXPECT_EQ((*documents)[1].string_at({"data", "config.py"}), main_file);
  EXPECT_EQ(made->job.find("var1"), nullptr);
  EXPECT_EQ(made->job.find_path({"metadata", "projectPath"}), nullptr);
  const std::string text = json::print(made->job);
  EXPECT_THAT(text, AllOf(HasSubstr(R"("configMap":{"name":"config-py-cartpole-7"})"),
                          HasSubstr(R"({"name":"JOB_NAME","value":"cartpole"})"),
                          HasSubstr(R"({"name":"HPO_PROJECT","value":"mine"})"),
                          HasSubstr(R"({"name":"HPO_TASK_NAME","value":"cartpole-7"})"),
                          HasSubstr(R"("hpo/trial":"3")")));
  EXPECT_EQ(jobs->pod_name("cartpole-7"), "cartpole-7-serial-0");
}

TEST(JobTemplateTest, H097TheProjectPathStandsUnderMetadataOrSpec) {
  EXPECT_EQ(parsed()->remote_path(), "/mnt/hpo");
  const std::string without = replaced("  projectPath: /mnt/hpo/\n", "");
  EXPECT_EQ(parsed(without, "/other//")->remote_path(), "/other");
  EXPECT_THAT(parsed(without).error().message(), HasSubstr("has projectPath"));
  std::string in_spec = without;
  in_spec.replace(in_spec.find("spec:\n"), 6, "spec:\n  projectPath: /spec\n");
  EXPECT_EQ(parsed(in_spec)->remote_path(), "/spec");
  EXPECT_THAT(parsed(kTemplate, "relative").error().message(), HasSubstr("relative"));
}

TEST(JobTemplateTest, WhatIsNoTemplateIsRefusedByName) {
  EXPECT_THAT(parsed(replaced("v2alpha1", "v1alpha1")).error().message(), HasSubstr("v1alpha1"));
  EXPECT_THAT(parsed(replaced("kind: ConfigMap", "kind: Secret")).error().message(),
              HasSubstr("'Secret'"));
  EXPECT_THAT(parsed(replaced("kind: ConfigMap", "kind: DIJob")).error().message(),
              HasSubstr("more than one DIJob"));
  EXPECT_THAT(parsed(replaced("- name: serial\n    type: none", "- type: none")).error().message(),
              HasSubstr("has no name"));
  EXPECT_THAT(parsed(replaced("  tasks:", "  others:")).error().message(), HasSubstr("spec.tasks"));
  EXPECT_THAT(parsed(replaced("containers:", "cans:")).error().message(), HasSubstr("containers"));
  EXPECT_THAT(parsed("").error().message(), HasSubstr("there is no DIJob"));
  EXPECT_THAT(parsed("[").error().message(), HasSubstr("t.yml: not valid YAML"));
}

TEST(JobTemplateTest, TheNamesOfThePodsDecideWhatAProjectMayBeCalled) {
  const auto jobs = parsed();
  const auto check = [&](const std::string& project) {
    return jobs->check_names(project, project + "-99999");
  };
  EXPECT_TRUE(check("cartpole").ok());
  EXPECT_TRUE(check(std::string(47, 'a')).ok());  // config-py- and -99999 are 16
  EXPECT_THAT(check(std::string(48, 'a')).message(),
              AllOf(HasSubstr("64 characters"), HasSubstr("'" + std::string(47, 'a') + "'")));
  EXPECT_THAT(check("Cart_Pole-").message(), HasSubstr("try 'cart-pole'"));
  EXPECT_THAT(check("-a").message(), HasSubstr("try 'a'"));
  EXPECT_THAT(check("\xC3\xA4").message(), HasSubstr("try 'trials'"));
}

TEST(JobTemplateTest, AMainFileThatDoesNotFitIsRefused) {
  const auto jobs = parsed();
  EXPECT_TRUE(jobs->fill(trial(std::string(kMaxMainFile, '#'))));
  EXPECT_THAT(jobs->fill(trial(std::string(kMaxMainFile + 1, '#'))).error().message(),
              HasSubstr("fit into a ConfigMap"));
}

TEST(JobTemplateTest, AHelperSeesTheVolumeOfTheProjectPath) {
  const json::Value pod = parsed()->helper(trial(), {"node-1", "uid-1", 1234});
  const std::string text = json::print(pod);
  EXPECT_THAT(text, AllOf(HasSubstr(R"("hostPath":{"path":"/lustre"})"), HasSubstr("@1234"),
                          HasSubstr(R"("uid":"uid-1")"), HasSubstr(R"("nodeName":"node-1")"),
                          HasSubstr(R"("image":"ding")")));
  EXPECT_THAT(text, testing::Not(HasSubstr("config-py")));
  // On a volume that dies with its pod, or on none, there is nothing to see.
  EXPECT_TRUE(
      parsed(replaced("hostPath: {path: /lustre}", "emptyDir: {}"))->helper(trial(), {}).is_null());
  EXPECT_TRUE(parsed(kTemplate, "/mnthpo")->helper(trial(), {}).is_null());
}

}  // namespace
}  // namespace divisi::trials
