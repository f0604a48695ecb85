#include "dijob/first/pod.h"

#include "json/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::dijob::first {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kServerUrl = "di-server.di-system:8080";

json::Value yaml(std::string_view text) {
  auto read = json::parse_yaml_one(text);
  EXPECT_TRUE(read) << (read ? "" : read.error().message());
  return read ? *std::move(read) : json::Value();
}

json::Value dijob(std::string_view spec) {
  json::Value object = yaml("{metadata: {name: job, namespace: default, uid: u1}}");
  object["spec"] = yaml(spec);
  return object;
}

Job read(std::string_view spec) {
  auto job = read_job(dijob(spec));
  EXPECT_TRUE(job) << (job ? "" : job.error().message());
  return job ? *std::move(job) : Job();
}

constexpr std::string_view kSpec = R"(
priorityClassName: high
volumes: [{name: work-dir, hostPath: {path: /data}}, {name: own, emptyDir: {}}]
coordinator:
  template:
    metadata: {labels: {team: rl}, annotations: {note: kept}}
    spec:
      containers:
        - {name: shell, image: busybox}
        - {name: coordinator, image: ding, env: [{name: COORDINATOR_PORT, value: "1"}, {name: A, value: b}]}
collector:
  template: {spec: {volumes: [{name: own, emptyDir: {medium: Memory}}],
                    containers: [{name: di-container, image: ding, ports: [{name: di-port, containerPort: 80}]}]}}
learner:
  template: {spec: {restartPolicy: OnFailure,
                    containers: [{name: learner, image: ding, ports: [{name: learner, containerPort: 500}],
                                  resources: {limits: {cpu: "6", nvidia.com/gpu: "1"}}}]}}
)";

std::string variable(const json::Value& pod, std::size_t container, std::string_view name) {
  std::string found = "(none)";
  int count = 0;
  for (const json::Value& each :
       *(*pod.find_path({"spec", "containers"})->as_array())[container].find("env")->as_array()) {
    if (each.string_at({"name"}) != name) continue;
    found = each.string_at({"value"});
    ++count;
  }
  EXPECT_LE(count, 1) << name;
  return found;
}

std::vector<std::string> ports_of(const json::Value& service) {
  std::vector<std::string> all;
  for (const json::Value& each : *service.find_path({"spec", "ports"})->as_array()) {
    all.push_back(
        fmt::format("{}={}", each.string_at({"name"}), each.int_at({"port"}).value_or(0)));
  }
  return all;
}

json::Value make(const Job& job, Role role, std::string name) {
  PodWish wish;
  wish.role = role;
  wish.name = std::move(name);
  wish.pod_template = job.find_template(role);
  return make_pod(job, wish, kServerUrl);
}

TEST(FirstJobTest, ShapeDecidesTheGeneration) {
  EXPECT_TRUE(is_first_generation(dijob("coordinator: {template: {}}")));
  EXPECT_FALSE(is_first_generation(dijob("tasks: []")));
  EXPECT_FALSE(is_first_generation(dijob("{coordinator: {template: {}}, tasks: []}")));
  EXPECT_FALSE(is_first_generation(dijob("{coordinator: {template: {}}, template: {}}")));
  EXPECT_FALSE(is_first_generation(json::Value(json::Object{})));
}

TEST(FirstJobTest, BadCleanPodPolicyHasTheTextOfTheWebhook) {
  const Job job = read("{cleanPodPolicy: hello, coordinator: {template: {}}}");
  EXPECT_EQ(check(job).message(), "Invalid CleanPodPolicy hello, expected in [None, Running, All]");
  EXPECT_EQ(read("{cleanPodPolicy: ALL, coordinator: {template: {}}}").clean_pods, CleanPods::kAll);
  EXPECT_FALSE(read("{cleanPodPolicy: '', coordinator: {template: {}}}").has_clean_pods);
}

TEST(FirstJobTest, NamesThatCannotBeServicesAreRefused) {
  Job job = read(kSpec);
  EXPECT_TRUE(check(job).ok());
  for (const char* const name : {"a.b", "1a", "A", "a-"}) {
    job.name = name;
    EXPECT_FALSE(check(job).ok()) << name;
  }
  job.name = std::string(47, 'a');
  EXPECT_TRUE(check(job).ok());
  job.name = std::string(48, 'a');  // "-collector-xxxxx" makes 64
  EXPECT_THAT(check(job).message(), HasSubstr("64 characters"));
}

TEST(FirstJobTest, FieldsOfAWrongKindAreNamed) {
  const auto bad = read_job(dijob("{volumes: 3, coordinator: {template: {}}}"));
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message(), HasSubstr("failed to convert type"));
  EXPECT_THAT(bad.error().message(), HasSubstr("spec.volumes"));
}

TEST(FirstPodTest, CoordinatorHasItsPortUrlAndPolicy) {
  const Job job = read(kSpec);
  const json::Value pod = make(job, Role::kCoordinator, "job-coordinator");
  EXPECT_EQ(pod.string_at({"spec", "restartPolicy"}), "Never");
  EXPECT_EQ(pod.string_at({"spec", "priorityClassName"}), "high");
  EXPECT_EQ(pod.find_path({"spec", "hostname"}), nullptr);
  for (const std::size_t container : {0U, 1U}) {
    EXPECT_EQ(variable(pod, container, "KUBERNETES_POD_NAMESPACE"), "default");
    EXPECT_EQ(variable(pod, container, "KUBERNETES_POD_NAME"), "job-coordinator");
    EXPECT_EQ(variable(pod, container, "KUBERNETES_SERVER_URL"), kServerUrl);
    EXPECT_EQ(variable(pod, container, "KUBERNETES_COORDINATOR_URL"),
              "job-coordinator.default:22273");
    EXPECT_EQ(variable(pod, container, "COORDINATOR_PORT"), "22273") << "the injected value wins";
  }
  EXPECT_EQ(variable(pod, 1, "A"), "b");
  EXPECT_EQ(main_port(*pod.find("spec"), Role::kCoordinator), 22273);
  EXPECT_EQ(pod.string_at({"metadata", "labels", "team"}), "rl");
  EXPECT_EQ(pod.string_at({"metadata", "annotations", "note"}), "kept");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "group-name"}), "diengine.opendilab.org");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "dijob-name"}), "job");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "controller-name"}), "di-operator");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "replica-type"}), "coordinator");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "pod-name"}), "job-coordinator");
  const auto read = read_pod(pod);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->url(), "job-coordinator.default:22273");
  EXPECT_EQ(read->owner, "job");
  EXPECT_EQ(read->owner_uid, "u1");
}

TEST(FirstPodTest, VolumesOfTheTemplateWin) {
  const Job job = read(kSpec);
  const json::Value pod = make(job, Role::kCollector, "job-collector-bcdfg");
  const json::Array& volumes = *pod.find_path({"spec", "volumes"})->as_array();
  ASSERT_EQ(volumes.size(), 2U);
  EXPECT_EQ(volumes[0].string_at({"emptyDir", "medium"}), "Memory");
  EXPECT_EQ(volumes[1].string_at({"name"}), "work-dir");
  EXPECT_EQ(pod.find_path({"spec", "restartPolicy"}), nullptr);
  EXPECT_EQ(read_pod(pod)->url(), "job-collector-bcdfg.default:80");
}

TEST(FirstPodTest, ResourcesOfTheRequestOverwriteBothLists) {
  const Job job = read(kSpec);
  PodWish wish{.role = Role::kLearner, .name = "job-learner-bcdfg", .pod_template = &*job.learner};
  wish.resources["memory"] = *json::Quantity::parse("10Gi");
  wish.resources["cpu"] = *json::Quantity::parse("2");
  wish.resources[std::string(kGpu)] = json::Quantity(0);
  const json::Value pod = make_pod(job, wish, kServerUrl);
  const json::Value& container = (*pod.find_path({"spec", "containers"})->as_array())[0];
  for (const char* const list : {"requests", "limits"}) {
    EXPECT_EQ(container.string_at({"resources", list, "memory"}), "10Gi");
    EXPECT_EQ(container.string_at({"resources", list, "cpu"}), "2");
  }
  EXPECT_EQ(container.string_at({"resources", "limits", "nvidia.com/gpu"}), "1");
  EXPECT_EQ(variable(pod, 0, "LEARNER_PORT"), "500");
}

TEST(FirstPodTest, LaterDdpPodsListenBehindTheFirst) {
  const Job job = read(kSpec);
  PodWish wish{.role = Role::kDdpLearner,
               .name = "job-ddp-learner-bcdfg",
               .pod_template = job.find_template(Role::kDdpLearner)};
  wish.resources[std::string(kGpu)] = json::Quantity(2);
  wish.ddp = DdpPlace{.world_size = 10,
                      .gpus = 2,
                      .start_rank = 8,
                      .several = true,
                      .master = "job-ddp-learner-master"};
  wish.aggregator_name = "job-aggregator-xxxxx";
  wish.aggregator_uid = "a1";
  const json::Value pod = make_pod(job, wish, kServerUrl);
  EXPECT_EQ(variable(pod, 0, "LEARNER_PORT"), "500");
  EXPECT_EQ(variable(pod, 0, "WORLD_SIZE"), "10");
  EXPECT_EQ(variable(pod, 0, "LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(variable(pod, 0, "START_RANK"), "8");
  EXPECT_EQ(variable(pod, 0, "MASTER_ADDR"), "job-ddp-learner-master");
  EXPECT_EQ(variable(pod, 0, "MASTER_PORT"), "10314");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "ddp-learner-type"}), "ddp-learner-worker");
  EXPECT_THAT(ports_of(make_service(pod)), ElementsAre("di-port=508", "gpu-port-1=509"));
  EXPECT_EQ(read_pod(pod)->aggregator_uid, "a1");
  EXPECT_THAT(read_pod(pod)->rank_urls(), ElementsAre("job-ddp-learner-bcdfg.default:508",
                                                      "job-ddp-learner-bcdfg.default:509"));

  wish.ddp = DdpPlace{.world_size = 10, .gpus = 8, .start_rank = 0, .several = true, .master = {}};
  wish.resources[std::string(kGpu)] = json::Quantity(8);
  const json::Value first = make_pod(job, wish, kServerUrl);
  EXPECT_EQ(variable(first, 0, "MASTER_ADDR"), "localhost");
  EXPECT_EQ(ports_of(make_service(first)).size(), 9U);
  EXPECT_EQ(ports_of(make_service(first)).back(), "master-port=10314");
}

TEST(FirstPodTest, ServiceMirrorsItsPod) {
  const Job job = read(kSpec);
  const json::Value pod = make(job, Role::kCollector, "job-collector-bcdfg");
  const json::Value service = make_service(pod);
  EXPECT_EQ(service.string_at({"metadata", "name"}), "job-collector-bcdfg");
  EXPECT_EQ(service.string_at({"spec", "clusterIP"}), "None");
  EXPECT_EQ(*service.find_path({"spec", "selector"}), *pod.find_path({"metadata", "labels"}));
  EXPECT_EQ(*service.find_path({"metadata", "ownerReferences"}),
            *pod.find_path({"metadata", "ownerReferences"}));
  EXPECT_THAT(ports_of(service), ElementsAre("di-port=80"));
  json::Value slim = pod;
  strip_pod(slim);
  EXPECT_EQ(make_service(slim), service) << "a stripped pod leads to the same service";
}

TEST(FirstPodTest, ReplacementHasItsOwnName) {
  const Job job = read(kSpec);
  json::Value pod = make(job, Role::kCollector, "job-collector-bcdfg");
  pod["spec"]["nodeName"] = "n1";
  pod["metadata"]["uid"] = "old";
  const std::string name = renamed("job-collector-bcdfg", 12345);
  EXPECT_NE(name, "job-collector-bcdfg");
  EXPECT_THAT(name, ::testing::MatchesRegex("job-collector-[bcdfghjklmnpqrstvwxz2456789]{5}"));
  const json::Value made = make_replacement(pod, name);
  EXPECT_EQ(made.string_at({"metadata", "labels", "pod-name"}), name);
  EXPECT_EQ(made.find_path({"metadata", "uid"}), nullptr);
  EXPECT_EQ(made.find_path({"spec", "nodeName"}), nullptr);
  EXPECT_EQ(variable(made, 0, "KUBERNETES_POD_NAME"), name);
  EXPECT_EQ(read_pod(made)->owner_uid, "u1");
}

TEST(FirstPodTest, MainContainerDecidesWhenOnlySidecarsRun) {
  json::Value pod = make(read(kSpec), Role::kCoordinator, "job-coordinator");
  pod["status"] = yaml(R"({phase: Running, containerStatuses: [
    {name: shell, state: {running: {}}},
    {name: coordinator, state: {terminated: {exitCode: 1, reason: Error}}}]})");
  EXPECT_EQ(read_pod(pod)->outcome(), "failed");
  pod["status"]["containerStatuses"] = yaml(R"([{name: shell, state: {terminated: {exitCode: 1}}},
    {name: coordinator, state: {running: {}}}])");
  EXPECT_EQ(read_pod(pod)->outcome(), "active");
  pod["status"]["phase"] = "Pending";
  EXPECT_EQ(read_pod(pod)->outcome(), "");
}

TEST(FirstPodTest, PodWhoseContainersHaveEndedIsNotCleaned) {
  json::Value pod = make(read(kSpec), Role::kCollector, "job-collector-bcdfg");
  pod["status"] = yaml("{phase: Running, containerStatuses: []}");
  json::Value& containers = pod["status"]["containerStatuses"];
  containers = yaml("[{name: di-container, state: {running: {}}}]");
  EXPECT_TRUE(read_pod(pod)->is_cleaned());
  containers = yaml("[{name: di-container, state: {terminated: {exitCode: 0}}}]");
  EXPECT_FALSE(read_pod(pod)->is_cleaned()) << "its phase follows in a moment";
  containers = yaml(
      "[{name: di-container, state: {terminated: {exitCode: 0}}}, {name: b, state: {running: "
      "{}}}]");
  EXPECT_TRUE(read_pod(pod)->is_cleaned()) << "only a sidecar runs";
  containers = yaml(
      "[{name: di-container, state: {running: {}}}, {name: b, state: {terminated: {exitCode: "
      "0}}}]");
  EXPECT_FALSE(read_pod(pod)->is_cleaned()) << "a container has ended";
}

TEST(FirstPodTest, PodsWithOtherLabelsAreNotRead) {
  json::Value pod = make(read(kSpec), Role::kCoordinator, "job-coordinator");
  pod["metadata"]["labels"]["controller-name"] = "other";
  EXPECT_FALSE(read_pod(pod));
  EXPECT_FALSE(read_pod(json::Value(json::Object{})));
}

}  // namespace
}  // namespace divisi::dijob::first
