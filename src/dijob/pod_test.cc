#include "dijob/pod.h"

#include "dijob/job_testing.h"
#include "dijob/names.h"
#include "http/base64.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>

namespace divisi::dijob {
namespace {

std::size_t count(std::string_view list) {
  return list.empty() ? 0 : 1 + static_cast<std::size_t>(std::ranges::count(list, ','));
}

std::vector<std::string> volume_names(const json::Value& pod) {
  std::vector<std::string> names;
  const json::Value* volumes = pod.find_path({"spec", "volumes"});
  if (volumes == nullptr) return names;
  for (const json::Value& volume : *volumes->as_array()) {
    names.emplace_back(volume.string_at({"name"}));
  }
  return names;
}

Job template_job(int replicas, std::string_view topology, int workers) {
  return job_of(
      fmt::format("minReplicas: {}\nengineFields: {{topology: {}, parallelWorkers: {}}}\n"
                  "template: {{spec: {{containers: [{{name: di-container}}]}}}}\n",
                  replicas, topology, workers));
}

TEST(MakePod, O052_EveryPodKnowsAllReplicas) {
  for (const auto& [counts, sum] : {std::pair<std::array<int, 3>, std::size_t>{{1, 1, 1}, 9},
                                    {{1, 1, 2}, 16},
                                    {{1, 3, 2}, 36}}) {
    std::size_t known = 0;
    for (const json::Value& pod : pods_of(job_of(three_tasks(counts[0], counts[1], counts[2])))) {
      known += count(variable(pod, "DI_NODES"));
    }
    EXPECT_EQ(known, sum);
  }
}

TEST(MakePod, O054_EveryPodHasTheVolumesOfTheJobBesideItsSecret) {
  for (const int volumes : {1, 3, 4}) {
    std::string spec = "volumes:\n";
    for (int i = 0; i < volumes; ++i) spec += fmt::format("- {{name: v{}, emptyDir: {{}}}}\n", i);
    for (const json::Value& pod : pods_of(job_of(spec + three_tasks(1, 1, 2)))) {
      std::vector<std::string> names = volume_names(pod);
      EXPECT_EQ(std::erase(names, kSecretVolume), 1u);
      EXPECT_EQ(names.size(), static_cast<std::size_t>(volumes));
    }
  }
}

TEST(MakePod, O055_TheListsOfHostsAreMadeOfNamesServiceSpaceAndDomain) {
  const std::string all =
      "job-learner-0.di-job.rl.svc.cluster.local,job-evaluator-0.di-job.rl.svc.cluster.local,"
      "job-collector-0.di-job.rl.svc.cluster.local,job-collector-1.di-job.rl.svc.cluster.local";
  const auto pods = pods_of(job_of(three_tasks(1, 1, 2)));
  for (std::size_t rank = 0; rank < pods.size(); ++rank) {
    const json::Value& pod = pods[rank];
    EXPECT_EQ(variable(pod, "DI_NODES"), all);
    EXPECT_EQ(variable(pod, "DI_RANK"), std::to_string(rank));
    EXPECT_EQ(variable(pod, "DI_LEARNER_NODES"), "job-learner-0.di-job.rl.svc.cluster.local");
    EXPECT_EQ(variable(pod, "DI_COLLECTOR_NODES"),
              "job-collector-0.di-job.rl.svc.cluster.local,"
              "job-collector-1.di-job.rl.svc.cluster.local");
    EXPECT_EQ(variable(pod, "DI_JOB_ID"), "rl/job");
  }
}

TEST(MakePod, O082_DomainAndServerAreThoseOfTheFlags) {
  const auto pods = pods_of(job_of(three_tasks(1, 1, 1)),
                            {.service_domain = "svc.k8s.cluster", .server_url = "http://there:1"});
  EXPECT_THAT(variable(pods[0], "DI_NODES"), ::testing::EndsWith(".di-job.rl.svc.k8s.cluster"));
  EXPECT_EQ(variable(pods[0], "DI_SERVER_URL"), "http://there:1");
}

TEST(MakePod, O073_CountsOfAttachedNodesFollowTheTopology) {
  struct Case {
    std::string_view topology;
    int replicas;
    int workers;
    std::size_t attached;
  };
  constexpr Case kCases[] = {{"alone", 1, 1, 0}, {"alone", 2, 3, 0}, {"star", 1, 1, 0},
                             {"star", 2, 3, 1},  {"star", 3, 3, 2},  {"star", 3, 4, 2},
                             {"mesh", 1, 1, 0},  {"mesh", 2, 3, 3},  {"mesh", 3, 3, 9},
                             {"mesh", 3, 4, 12}};
  for (const Case& now : kCases) {
    std::size_t attached = 0;
    for (const auto& pod : pods_of(template_job(now.replicas, now.topology, now.workers))) {
      attached += count(variable(pod, "DI_ATTACHED_NODES_ARG"));
    }
    EXPECT_EQ(attached, now.attached) << now.topology << now.replicas << "x" << now.workers;
  }
}

TEST(MakePod, ATemplateFormGetsTheArgumentsOfItsEngine) {
  const Job job = template_job(3, "mesh", 2);
  const json::Value pod =
      PodMaker(job, {.all = slots_of(job), .replicas = 3, .generation = 4}).make({{"", 1, 1}});
  EXPECT_EQ(pod.string_at({"metadata", "name"}), "job-4-1");
  EXPECT_EQ(pod.string_at({"spec", "hostname"}), "job-4-1");
  EXPECT_EQ(pod.string_at({"spec", "subdomain"}), "job");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "diengine/rank"}), "1");
  EXPECT_EQ(pod.string_at({"metadata", "annotations", "diengine/generation"}), "4");
  EXPECT_EQ(variable(pod, "DI_JOB_GENERATION"), "4");
  EXPECT_EQ(variable(pod, "DI_PARALLEL_WORKERS_ARG"), "--parallel-workers=2");
  EXPECT_EQ(variable(pod, "DI_PORTS_ARG"), "--ports=22270,22271");
  EXPECT_EQ(variable(pod, "DI_NODE_IDS_ARG"), "--node-ids=2,3");
  EXPECT_EQ(variable(pod, "DI_ATTACHED_NODES_ARG"),
            "--attach-to=tcp://job-4-0.job:22270,tcp://job-4-0.job:22271");
  EXPECT_EQ(variable(pod, "DI_RANK"), "1");
  EXPECT_EQ(count(variable(pod, "DI_NODES")), 3u);
}

// Beyond 128 KiB no container of the job would start.
TEST(MakePod, TheListsOfHostsFitIntoAVariable) {
  constexpr std::size_t kMost = 128 * 1024 - 1;
  const auto longest = [](const Job& job) {
    const std::vector<Slot> all = slots_of(job);
    const json::Value pod =
        PodMaker(job, {.all = all, .replicas = 1, .generation = 999}).make({all.back()});
    return std::max(std::string("DI_NODES=").size() + variable(pod, "DI_NODES").size(),
                    std::string("DI_ATTACHED_NODES_ARG=").size() +
                        variable(pod, "DI_ATTACHED_NODES_ARG").size());
  };
  const auto largest = [&](auto make) {
    int fits = 1;
    for (int step = 4096; step > 0; step /= 2) {
      if (check_lists(make(fits + step), {}).ok()) fits += step;
    }
    EXPECT_LE(longest(make(fits)), kMost);
    EXPECT_GT(longest(make(fits + fits / 20)), kMost) << fits;
    return make(fits + 1);
  };
  const Job tasks = largest([](int size) { return job_of(three_tasks(1, 1, size)); });
  EXPECT_THAT(check_lists(tasks, {}).message(), ::testing::HasSubstr("DI_NODES"));
  const Job mesh = largest([](int size) { return template_job(size, "mesh", 8); });
  EXPECT_THAT(check_lists(mesh, {}).message(), ::testing::HasSubstr("DI_ATTACHED_NODES_ARG"));
  EXPECT_TRUE(check_lists(template_job(500, "star", 20), {}).ok());
}

TEST(MakePod, M8_ADistributedLearnerFindsTheFirstOfItsTask) {
  const auto pods = pods_of(job_of(three_tasks(2, 1, 3)));
  const json::Value& collector = pods[5];
  EXPECT_EQ(variable(collector, "MASTER_ADDR"), "job-collector-0.di-job.rl.svc.cluster.local");
  EXPECT_EQ(variable(collector, "MASTER_PORT"), "10314");
  EXPECT_EQ(variable(collector, "WORLD_SIZE"), "3");
  EXPECT_EQ(variable(collector, "RANK"), "2");
}

TEST(MakePod, OD02_AfterAResizeEveryRankIsStillAtItsPlaceInTheList) {
  Job job = job_of(three_tasks(1, 1, 1));
  std::vector<Slot> all = slots_of(job_of(three_tasks(1, 1, 2)));  // one collector is gone again
  all.push_back({"learner", 1, 4});
  job.tasks[0].replicas = 2;
  const json::Value pod = PodMaker(job, {.all = all, .replicas = 4}).make({all.back()});
  EXPECT_EQ(variable(pod, "DI_RANK"), "4");
  EXPECT_EQ(count(variable(pod, "DI_NODES")), 5u);
  EXPECT_THAT(variable(pod, "DI_NODES"),
              ::testing::EndsWith(",job-learner-1.di-job.rl.svc.cluster.local"));
  EXPECT_EQ(count(variable(pod, "DI_LEARNER_NODES")), 2u);
  EXPECT_EQ(count(variable(pod, "DI_COLLECTOR_NODES")), 1u);
}

TEST(MakePod, OD07_TheMainContainerIsFoundByItsNameThenByTheTaskThenByPosition) {
  const Task task{.name = "serial", .type = "learner"};
  const auto main = [&](std::string_view names) {
    const json::Value spec = yaml(fmt::format("containers: [{}]", names));
    return std::string(main_container(spec, task)->string_at({"name"}));
  };
  EXPECT_EQ(main("{name: learner}, {name: serial}, {name: di-container}"), "di-container");
  EXPECT_EQ(main("{name: shell}, {name: learner}, {name: serial}"), "serial");
  EXPECT_EQ(main("{name: shell}, {name: learner}"), "learner");
  EXPECT_EQ(main("{name: shell}, {name: other}"), "shell");
  EXPECT_EQ(main_container(json::Value(), task), nullptr);

  const auto port = [&](std::string_view ports) {
    return main_port(yaml(fmt::format("containers: [{{name: a, ports: [{}]}}]", ports)), task);
  };
  EXPECT_EQ(port("{name: x, containerPort: 1}, {name: di-port, containerPort: 80}"), 80);
  EXPECT_EQ(port("{name: learner, containerPort: 81}"), 81);
  EXPECT_EQ(port("{name: x, containerPort: 1}"), 22270);
  EXPECT_EQ(port("{name: di-port, containerPort: 70000}"), 22270);
}

TEST(MakePod, OD08_LabelsAndAnnotationsOfTheTemplateAreKeptAndOursWin) {
  const Job job = job_of(
      "tasks:\n- type: learner\n  template:\n    metadata:\n"
      "      labels: {team: a, diengine/job: other}\n      annotations: {mesh/inject: \"no\"}\n"
      "    spec: {containers: [{name: c}]}\n");
  const json::Value pod = pods_of(job).at(0);
  const json::Value* labels = pod.find_path({"metadata", "labels"});
  EXPECT_EQ(labels->string_at({"team"}), "a");
  EXPECT_EQ(labels->string_at({"diengine/job"}), "job");
  EXPECT_EQ(labels->string_at({"diengine/operator"}), "di-operator");
  EXPECT_EQ(labels->string_at({"diengine/task-type"}), "learner");
  EXPECT_EQ(labels->string_at({"diengine/task-name"}), "learner");
  EXPECT_EQ(labels->string_at({"diengine/pod"}), "job-learner-0");
  const json::Value* notes = pod.find_path({"metadata", "annotations"});
  EXPECT_EQ(notes->string_at({"mesh/inject"}), "no");
  EXPECT_EQ(notes->string_at({"diengine/replicas"}), "1");
  EXPECT_EQ(notes->string_at({"diengine/rank"}), "0");
  EXPECT_EQ(notes->string_at({"diengine/task-rank"}), "0");
  ASSERT_NE(notes->find("diengine/node"), nullptr);
}

TEST(MakePod, OD15_TasksOfTypeNoneHaveListsOfTheirOwn) {
  const Job job = job_of(
      "tasks:\n"
      "- {type: none, name: replay-a, replicas: 2, template: {spec: {containers: [{name: c}]}}}\n"
      "- {type: none, name: b, template: {spec: {containers: [{name: c}]}}}\n");
  for (const json::Value& pod : pods_of(job)) {
    EXPECT_EQ(count(variable(pod, "DI_REPLAY_A_NODES")), 2u);
    EXPECT_EQ(variable(pod, "DI_B_NODES"), "job-b-0.di-job.rl.svc.cluster.local");
  }
}

TEST(MakePod, OD17_TheSubdomainOfAPodIsTheNameOfTheService) {
  for (const Job& job : {job_of(three_tasks(1, 1, 1)), template_job(1, "star", 1)}) {
    const json::Value service = make_service(job);
    for (const json::Value& pod : pods_of(job)) {
      EXPECT_EQ(pod.string_at({"spec", "subdomain"}), service.string_at({"metadata", "name"}));
      EXPECT_EQ(pod.string_at({"spec", "hostname"}), pod.string_at({"metadata", "name"}));
    }
  }
}

TEST(MakeService, OD18_PublishesAddressesOfPodsThatAreNotReady) {
  const json::Value service = make_service(job_of(three_tasks(1, 1, 1)));
  EXPECT_EQ(service.bool_at({"spec", "publishNotReadyAddresses"}), true);
  EXPECT_EQ(service.string_at({"spec", "clusterIP"}), "None");
  EXPECT_EQ(service.string_at({"spec", "selector", "diengine/job"}), "job");
  EXPECT_EQ(service.string_at({"spec", "selector", "diengine/operator"}), "di-operator");
  const json::Value& port = service.find_path({"spec", "ports"})->as_array()->at(0);
  EXPECT_EQ(port.string_at({"name"}), "di-port");
  EXPECT_EQ(port.int_at({"port"}), 22270);
}

TEST(MakePod, OD31_AVolumeOfTheTemplateWinsOverOneOfTheJob) {
  const Job job = job_of(
      "volumes: [{name: v, emptyDir: {medium: Memory}}, {name: w, emptyDir: {}}]\n"
      "tasks:\n- type: learner\n  template: {spec: {volumes: [{name: v, hostPath: {path: /v}}], "
      "containers: [{name: c}]}}\n");
  const json::Value pod = pods_of(job).at(0);
  EXPECT_THAT(volume_names(pod), ::testing::ElementsAre("v", "w", "divisi-job-secret"));
  EXPECT_NE(pod.find_path({"spec", "volumes"})->as_array()->at(0).find("hostPath"), nullptr);
}

TEST(MakePod, VariablesGoToEveryContainerAndDoNotReplaceTheUsers) {
  const Job job = job_of(
      "tasks:\n- type: learner\n  template: {spec: {containers: [{name: a, env: [{name: RANK, "
      "value: "
      "mine}]}, {name: b}], initContainers: [{name: i}], restartPolicy: Always}}\n");
  const json::Value pod = pods_of(job).at(0);
  EXPECT_EQ(pod.string_at({"spec", "restartPolicy"}), "Never");
  EXPECT_EQ(variable(pod, "RANK"), "mine");
  EXPECT_EQ(variable(pod, "RANK", "containers", 1), "0");
  EXPECT_EQ(variable(pod, "DI_RANK", "initContainers"), "0");
}

TEST(MakePod, M6_TheSecretIsAFileInEveryContainerUnlessItsPlaceIsTaken) {
  const Job job = job_of(
      "tasks:\n- type: learner\n  template: {spec: {volumes: [{name: v}], containers: [{name: a}, "
      "{name: b, "
      "volumeMounts: [{name: v, mountPath: /var/run/divisi/job}]}]}}\n");
  const json::Value pod = pods_of(job).at(0);
  EXPECT_EQ(variable(pod, "DIVISI_SECRET_FILE"), "/var/run/divisi/job/secret");
  EXPECT_EQ(variable(pod, "DIVISI_SECRET_FILE", "containers", 1), "(unset)");
  const json::Value& volume = pod.find_path({"spec", "volumes"})->as_array()->at(1);
  EXPECT_EQ(volume.string_at({"secret", "secretName"}), secret_name(job));

  const json::Value secret = make_secret(job, "0123abcd");
  EXPECT_EQ(secret.string_at({"metadata", "name"}), "job-secret-5f0e8a4c");
  EXPECT_EQ(http::decode_base64(secret.string_at({"data", "secret"})), "0123abcd");
}

TEST(MakePod, EveryObjectIsOwnedByTheJob) {
  const Job job = job_of(three_tasks(1, 1, 1));
  for (const json::Value& object : {pods_of(job)[0], make_service(job), make_secret(job, "x")}) {
    const json::Value& owner = object.find_path({"metadata", "ownerReferences"})->as_array()->at(0);
    EXPECT_EQ(owner.string_at({"apiVersion"}), "diengine.opendilab.org/v2alpha1");
    EXPECT_EQ(owner.string_at({"kind"}), "DIJob");
    EXPECT_EQ(owner.string_at({"uid"}), job.uid);
    EXPECT_EQ(owner.bool_at({"controller"}), true);
    EXPECT_EQ(object.string_at({"metadata", "namespace"}), "rl");
  }
}

TEST(MakePod, APlacedPodIsBoundToItsNode) {
  const Job job = job_of(three_tasks(1, 1, 1));
  const json::Value pod = PodMaker(job, {.all = slots_of(job), .replicas = 3})
                              .make({.slot = {"learner", 0, 0}, .node = "n1"});
  EXPECT_EQ(pod.string_at({"spec", "nodeName"}), "n1");
  EXPECT_EQ(pod.string_at({"metadata", "annotations", "diengine/node"}), "n1");
  EXPECT_EQ(pods_of(job)[0].find_path({"spec", "nodeName"}), nullptr);
}

TEST(TemplateHash, ChangesWithWhatPodsAreMadeOfAndNotWithTheOrderOfKeys) {
  const auto hash = [](std::string_view spec) {
    const Job job = job_of(spec);
    return template_hash(job, job.tasks.at(0));
  };
  const std::string base =
      hash("tasks: [{type: learner, template: {spec: {containers: [{name: a, image: b}]}}}]");
  EXPECT_EQ(base.size(), 16u);
  EXPECT_EQ(base, hash("{backoffLimit: 0, tasks: [{template: {spec: {containers: [{image: b, name: "
                       "a}]}}, replicas: 3, type: learner}]}"));
  EXPECT_NE(
      base,
      hash("tasks: [{type: learner, template: {spec: {containers: [{name: a, image: c}]}}}]"));
  EXPECT_NE(base,
            hash("{volumes: [{name: v}], tasks: [{type: learner, template: {spec: {containers: "
                 "[{name: a, image: b}]}}}]}"));
  Job rolled =
      job_of("tasks: [{type: learner, template: {spec: {containers: [{name: a, image: b}]}}}]");
  rolled.restarted_at = "2026-11-15T10:00:00Z";
  EXPECT_EQ(base, template_hash(rolled, rolled.tasks[0])) << "it makes no pod older";
}

}  // namespace
}  // namespace divisi::dijob
