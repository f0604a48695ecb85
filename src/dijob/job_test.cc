#include "dijob/job.h"

#include "dijob/job_testing.h"

#include <gmock/gmock.h>

namespace divisi::dijob {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kTemplate = "{spec: {containers: [{name: di-container, image: a}]}}";

std::string with_template(std::string_view before) {
  return fmt::format("{}template: {}\n", before, kTemplate);
}

// The message for a spec that cannot be read.
std::string unreadable_object(const json::Value& object) {
  const auto job = read_job(object);
  EXPECT_FALSE(job.has_value());
  return job ? "" : job.error().message();
}
std::string unreadable(std::string_view spec) {
  return unreadable_object(job_object(spec));
}

// The message for a job that can be read, but not run.
std::string refused_object(const json::Value& object) {
  return check(job_from(object)).message();
}
std::string refused(std::string_view spec) {
  return refused_object(job_object(spec));
}

std::string one_task(std::string_view more) {
  return fmt::format("tasks:\n- {{type: none, name: serial, template: {}, {}}}\n", kTemplate, more);
}

std::string one_container(std::string_view container, std::string_view spec = "") {
  return fmt::format(
      "tasks:\n- type: learner\n  template: {{spec: {{{} containers: [{{name: a, {}}}]}}}}\n", spec,
      container);
}

TEST(ReadJob, FillsInTheDefaultsOfTheTasksForm) {
  const Job job = job_of(three_tasks(1, 1, 2));
  EXPECT_EQ(job.space, "rl");
  EXPECT_EQ(job.name, "job");
  EXPECT_EQ(job.form, Form::kTasks);
  EXPECT_EQ(job.priority, "normal");
  EXPECT_EQ(job.clean_pods, CleanPods::kRunning);
  EXPECT_FALSE(job.preemptible || job.suspended || job.deleting);
  EXPECT_EQ(job.backoff_limit, Limit(3));
  EXPECT_EQ(job.tasks.at(2).name, "collector");
  EXPECT_EQ(job.want(), 4);
  EXPECT_TRUE(check(job).ok()) << check(job).message();
  EXPECT_EQ(job_of(one_task("")).tasks.at(0).replicas, 1);
}

TEST(ReadJob, O060_AcceptsAGroupLeftInATasksForm) {
  const Job job = job_of("group: xxx\nprojectPath: /somewhere\n" + three_tasks(1, 1, 1));
  EXPECT_TRUE(check(job).ok());
  EXPECT_TRUE(job.warnings.empty());
}

TEST(ReadJob, O074_ATemplateFormWithoutEngineFieldsIsAStarOfOneWorkerEach) {
  const Job job = job_of(with_template("minReplicas: 3\nmaxReplicas: 3\n"));
  EXPECT_EQ(job.form, Form::kTemplate);
  EXPECT_EQ(job.topology, "star");
  EXPECT_EQ(job.parallel_workers, 1);
  EXPECT_EQ(job.min_replicas, 3);
  EXPECT_EQ(job.tasks.size(), 1u);
  EXPECT_EQ(job.want(), 3);
  EXPECT_EQ(job.backoff_limit, Limit(0));
  EXPECT_TRUE(check(job).ok()) << check(job).message();
}

TEST(ReadJob, OD01_TheShapeDecidesNotTheVersion) {
  EXPECT_EQ(job_of(three_tasks(1, 1, 1)).form, Form::kTasks);
  EXPECT_EQ(job_of(with_template("minReplicas: 1\n")).form, Form::kTemplate);
  EXPECT_THAT(unreadable(with_template("tasks: []\n")), HasSubstr("both tasks and template"));
  EXPECT_THAT(unreadable("{group: x}"), HasSubstr("neither tasks nor template"));
  EXPECT_THAT(unreadable("coordinator: {template: {}}"), HasSubstr("v1alpha1"));
  EXPECT_THAT(unreadable("{coordinator: {template: {}}, tasks: []}"),
              HasSubstr("both coordinator and tasks"));
}

TEST(ReadJob, OD04_ABackoffLimitOfNullIsNoLimitAndAnAbsentOneIsThree) {
  EXPECT_EQ(job_of(three_tasks(1, 1, 1)).backoff_limit, Limit(3));
  EXPECT_EQ(job_of("backoffLimit: null\n" + three_tasks(1, 1, 1)).backoff_limit, Limit());
  EXPECT_EQ(job_of("backoffLimit: 0\n" + three_tasks(1, 1, 1)).backoff_limit, Limit(0));
  EXPECT_EQ(job_of("backoffLimit: -7\n" + three_tasks(1, 1, 1)).backoff_limit, Limit(0));

  EXPECT_EQ(job_of(one_task("")).tasks[0].backoff_limit, std::nullopt);
  EXPECT_EQ(job_of(one_task("backoffLimit: 2")).tasks[0].backoff_limit, std::optional(Limit(2)));
  const auto unlimited = job_of(one_task("backoffLimit: null")).tasks[0].backoff_limit;
  ASSERT_TRUE(unlimited.has_value());
  EXPECT_FALSE(unlimited->has_value());
}

TEST(ReadJob, ReadsWhatGoesBeyondTheReference) {
  const Job job = job_of(
      "replicas: 4\nsuspend: true\nttlSecondsAfterFinished: 60\nactiveDeadlineSeconds: 3600\n"
      "exitCodeRules: [{exitCodes: [3, 4], action: FailJob}]\n" +
      one_task("restartPolicy: Always, completesJob: true, minAvailable: 1, replicas: 2, "
               "exitCodeRules: [{exitCodes: [9], action: Ignore}]"));
  EXPECT_TRUE(check(job).ok()) << check(job).message();
  EXPECT_EQ(job.replicas, 4);
  EXPECT_TRUE(job.suspended);
  EXPECT_EQ(job.keep_finished, std::chrono::seconds(60));
  EXPECT_EQ(job.active_deadline, std::chrono::hours(1));
  EXPECT_EQ(job.exit_rules.at(0).codes, (std::vector<int>{3, 4}));
  EXPECT_EQ(job.exit_rules.at(0).action, ExitAction::kFailJob);
  const Task& task = job.tasks.at(0);
  EXPECT_EQ(task.restart, Restart::kAlways);
  EXPECT_TRUE(task.completes_job);
  EXPECT_EQ(task.min_available, 1);
  EXPECT_EQ(task.exit_rules.at(0).action, ExitAction::kIgnore);
}

TEST(ReadJob, UnderstandsContainersOneLevelTooHighAndWarns) {
  const Job job = job_of(
      "tasks:\n- type: learner\n  template:\n    metadata: {labels: {a: b}}\n    spec: {}\n"
      "    containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}]}]\n"
      "    volumes: [{name: v, emptyDir: {}}]\n");
  EXPECT_TRUE(check(job).ok()) << check(job).message();
  const json::Value& made = job.tasks.at(0).pod_template;
  EXPECT_EQ(made.find("containers"), nullptr);
  EXPECT_NE(made.find_path({"spec", "volumes"}), nullptr);
  EXPECT_EQ(made.string_at({"metadata", "labels", "a"}), "b");
  ASSERT_EQ(job.warnings.size(), 1u);
  EXPECT_EQ(job.warnings[0],
            "spec.tasks[0].template.containers is understood as "
            "spec.tasks[0].template.spec.containers, where it belongs");
}

TEST(ReadJob, AcceptsTheOldSpellingOfAll) {
  EXPECT_EQ(job_of("cleanPodPolicy: ALL\n" + three_tasks(1, 1, 1)).clean_pods, CleanPods::kAll);
}

TEST(ReadJob, NamesTheFieldThatIsOfTheWrongKind) {
  struct Case {
    std::string spec;
    std::string message;
  };
  const Case cases[] = {
      {"tasks: [{type: none, name: a}, {type: none, name: b, replicas: \"2\"}]",
       "spec.tasks[1].replicas must be a number, not a string"},
      {"tasks: {a: b}", "spec.tasks must be an array, not an object"},
      {"tasks: [3]", "spec.tasks[0] must be an object, not a number"},
      {"tasks: [null]", "spec.tasks[0] must be an object, not null"},
      {"{tasks: [], preemptible: 1}", "spec.preemptible must be a bool, not a number"},
      {"{tasks: [], backoffLimit: 1.5}", "spec.backoffLimit must be a whole number of 32 bits"},
      {"{tasks: [], backoffLimit: 4294967296}",
       "spec.backoffLimit must be a whole number of 32 bits"},
      {"tasks: [{template: []}]", "spec.tasks[0].template must be an object, not an array"},
      {"tasks: [{template: {spec: {containers: {}}}}]",
       "spec.tasks[0].template.spec.containers must be an array, not an object"},
      {"tasks: [{template: {spec: {containers: [{env: [A=b]}]}}}]",
       "spec.tasks[0].template.spec.containers[0].env[0] must be an object, not a string"},
      {"tasks: [{template: {metadata: {labels: {a: 1}}}}]",
       "spec.tasks[0].template.metadata.labels.a must be a string, not a number"},
      {"{tasks: [], volumes: [x]}", "spec.volumes[0] must be an object, not a string"},
      {"{template: {}, engineFields: {parallelWorkers: many}}",
       "spec.engineFields.parallelWorkers must be a number, not a string"},
      {"tasks: [{startAfter: [1]}]", "spec.tasks[0].startAfter[0] must be a string, not a number"},
      {"tasks: [{exitCodeRules: [{exitCodes: [x]}]}]",
       "spec.tasks[0].exitCodeRules[0].exitCodes[0] must be a number, not a string"},
      {"hello", "spec must be an object, not a string"},
  };
  for (const Case& wrong : cases) {
    EXPECT_EQ(unreadable(wrong.spec), "failed to convert type: " + wrong.message) << wrong.spec;
  }
  EXPECT_THAT(unreadable_object("x"), StartsWith("failed to convert type"));
  EXPECT_THAT(unreadable_object(json::Object{}), HasSubstr("has no spec"));
}

TEST(CheckJob, O058_SaysWhatTheReferenceSaysInItsOrder) {
  const std::string none = "{type: none}";
  const std::string collectors = "{type: collector}, {type: collector, name: b}";
  EXPECT_EQ(refused("tasks: [" + none + ", " + collectors + "]"),
            "the number of collector task is more than one");
  EXPECT_EQ(refused("tasks: [" + none + "]"), "none type task has no name");
  EXPECT_EQ(refused("tasks: [{}]"), "none type task has no name");
  EXPECT_EQ(refused("tasks: [{type: none, name: a}, {type: learner, name: a}]"),
            "there is more than one task named a");
}

TEST(CheckJob, OD32_RefusesNamesThatDnsCannotHave) {
  json::Value object = job_object(three_tasks(1, 1, 11));
  const auto named = [&](const std::string& name) {
    object["metadata"]["name"] = name;
    return refused_object(object);
  };
  EXPECT_EQ(named(std::string(50, 'j')), "");  // and "-collector-10" makes 63
  EXPECT_THAT(named(std::string(51, 'j')), HasSubstr("pod name"));
  EXPECT_THAT(named(std::string(61, 'j')), HasSubstr("service name"));
  EXPECT_THAT(named("a.b"), HasSubstr("contains a dot"));
  EXPECT_THAT(refused("tasks: [{type: none, name: A_b}]"), HasSubstr("spec.tasks[0].name"));
  EXPECT_THAT(refused("tasks: [{type: none, name: a-}]"), HasSubstr("spec.tasks[0].name"));

  object = job_object(with_template("minReplicas: 1\n"));
  EXPECT_EQ(named("j9"), "");
  EXPECT_THAT(named("9j"), HasSubstr("begins with a digit"));
}

TEST(CheckJob, RefusesEveryNumberAndWordThatMakesNoSense) {
  struct Case {
    std::string spec;
    std::string part;
  };
  const Case cases[] = {
      {"tasks: []", "spec.tasks is empty"},
      {one_task("replicas: 0"), "spec.tasks[0].replicas must be at least 1, not 0"},
      {one_task("replicas: 10001"), "10001 replicas"},
      {one_task("replicas: 2, minAvailable: 3"), "minAvailable"},
      {one_task("startAfter: [other]"), "\"other\", which is no task"},
      {one_task("startAfter: [serial]"), "circle of the tasks serial"},
      {one_task("restartPolicy: Sometimes"), "one of OnFailure, Never, Always, not \"Sometimes\""},
      {one_task("exitCodeRules: [{exitCodes: [1], action: Cry}]"), "Count, Ignore, FailJob"},
      {one_task("exitCodeRules: [{exitCodes: [256]}]"), "exitCodes"},
      {one_task("exitCodeRules: [{action: Count}]"), "exitCodes"},
      {"priority: urgent\n" + one_task(""), "spec.priority must be one of normal, high"},
      {"cleanPodPolicy: hello\n" + one_task(""), "spec.cleanPodPolicy must be one of Running"},
      {"ttlSecondsAfterFinished: -1\n" + one_task(""), "must not be negative"},
      {"tasks: [{type: wizard}]", "spec.tasks[0].type must be one of learner"},
      {"tasks: [{type: learner}]", "spec.tasks[0].template.spec has no containers"},
      {with_template("maxReplicas: 0\n"), "spec.maxReplicas"},
      {with_template("minReplicas: 4\nmaxReplicas: 3\n"), "spec.maxReplicas"},
      {with_template("minReplicas: -1\n"), "spec.minReplicas"},
      {with_template("group: \"not a label\"\n"), "spec.group"},
      {with_template("engineFields: {topology: ring}\n"), "star, alone, mesh"},
      {with_template("engineFields: {parallelWorkers: 0}\n"), "parallelWorkers"},
      {with_template("minReplicas: 5000\nengineFields: {parallelWorkers: 3}\n"), "15000 replicas"},
      {"template: {spec: {}}", "spec.template.spec has no containers"},
  };
  for (const Case& wrong : cases) EXPECT_THAT(refused(wrong.spec), HasSubstr(wrong.part));
}

TEST(CheckJob, ACircleOfThreeTasksIsFoundAndAChainIsNot) {
  const auto tasks = [](std::string_view last) {
    std::string spec = "tasks:\n";
    for (const auto& [name, after] :
         {std::pair<std::string_view, std::string_view>{"a", last}, {"b", "a"}, {"c", "b"}}) {
      spec += fmt::format("- {{type: none, name: {}, startAfter: [{}], template: {}}}\n", name,
                          after, kTemplate);
    }
    return spec;
  };
  EXPECT_EQ(refused(tasks("")), "");
  EXPECT_THAT(refused(tasks("c")), HasSubstr("a, b, c"));
}

TEST(CheckJob, OD31_AVolumeTwiceInOneListIsRefusedAndInBothListsIsNot) {
  const std::string job_volume = "volumes: [{name: v, emptyDir: {}}]\n";
  EXPECT_EQ(refused(job_volume + one_container("image: a", "volumes: [{name: v}],")), "");
  EXPECT_THAT(
      refused(one_container("image: a", "volumes: [{name: v}, {name: v}],")),
      HasSubstr("spec.tasks[0].template.spec.volumes has more than one volume named \"v\""));
  EXPECT_THAT(refused("volumes: [{name: v}, {name: v}]\n" + one_task("")),
              HasSubstr("spec.volumes has more than one"));
  EXPECT_THAT(refused("volumes: [{emptyDir: {}}]\n" + one_task("")), HasSubstr("without a name"));
}

TEST(CheckJob, AMountNeedsAVolumeOfTheTemplateOrOfTheJob) {
  const std::string container = "volumeMounts: [{name: v, mountPath: /v}]";
  EXPECT_EQ(refused("volumes: [{name: v}]\n" + one_container(container)), "");
  EXPECT_EQ(refused(one_container(container, "volumes: [{name: v}],")), "");
  EXPECT_EQ(refused(one_container(container)),
            "spec.tasks[0].template.spec.containers[0].volumeMounts names the volume \"v\", which "
            "the pod does not have");
}

TEST(CheckJob, AmountsThatDoNotParseKeepTheTextThatClientsLookFor) {
  EXPECT_EQ(
      refused(one_container("resources: {requests: {cpu: 2, memory: 1.5Gi}, limits: {cpu: 0.5}}")),
      "");
  EXPECT_EQ(refused(one_container("resources: {limits: {nvidia.com/gpu: one}}")),
            "spec.tasks[0].template.spec.containers[0].resources.limits.nvidia.com/gpu is \"one\": "
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
  EXPECT_THAT(refused(one_container("resources: {requests: {cpu: [1]}}")),
              HasSubstr("regular expression"));
  EXPECT_THAT(refused(one_container("resources: {requests: {cpu: -1}}")), HasSubstr("negative"));
}

TEST(ScaledTask, IsTheCollectorElseTheOnlyOne) {
  const Job three = job_of(three_tasks(1, 1, 1));
  ASSERT_NE(scaled_task(three), nullptr);
  EXPECT_EQ(scaled_task(three)->type, "collector");
  const Job one = job_of(one_task(""));
  EXPECT_EQ(scaled_task(one), &one.tasks[0]);
  EXPECT_EQ(scaled_task(job_of("tasks: [{type: learner}, {type: evaluator}]")), nullptr);
}

}  // namespace
}  // namespace divisi::dijob
