#include "local/cluster.h"

#include "base/testing/temp_folder.h"
#include "base/testing/wait_until.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace divisi::local {
namespace {

using namespace std::chrono_literals;
using divisi::testing::TempFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// One job on a real loop with real processes.
class ClusterTest : public ::testing::Test {
 protected:
  ~ClusterTest() override {
    reactor_->run_on_loop([this] { cluster_.reset(); });
  }

  Status start(const std::string& manifest) {
    auto read = read_manifest(manifest);
    if (!read) return read.error();
    Status status;
    reactor_->run_on_loop([&] {
      auto made = Cluster::start(
          *reactor_, *std::move(read),
          {.folder = folder_.path(),
           .api_port = api_port_,
           .on_output =
               [this](std::string_view pod, std::string_view, std::string_view line) {
                 const std::lock_guard lock(mutex_);
                 lines_[std::string(pod)].emplace_back(line);
                 changed_.notify_all();
               },
           .on_limit =
               [this](std::string_view line) {
                 const std::lock_guard lock(mutex_);
                 limits_.emplace_back(line);
               },
           .on_phase =
               [this](std::string_view phase, std::string_view) {
                 const std::lock_guard lock(mutex_);
                 phases_.emplace_back(phase);
                 changed_.notify_all();
               }});
      if (made) {
        cluster_ = *std::move(made);
      } else {
        status = made.error();
      }
    });
    return status;
  }

  bool wait(const std::function<bool()>& done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, done);
  }
  ::testing::AssertionResult wait_for_phase(const std::string& phase) {
    if (wait([&] { return !phases_.empty() && phases_.back() == phase; })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << described();
  }
  // For the message of a test that failed.
  std::string described() {
    std::string text;
    reactor_->run_on_loop([&] {
      text = json::print(cluster_->job(), 1);
      for (const json::Value& pod : cluster_->pods()) text += json::print(*pod.find("status"), 1);
    });
    const std::lock_guard lock(mutex_);
    for (const auto& [pod, lines] : lines_) {
      for (const std::string& line : lines) text += "\n" + pod + ": " + line;
    }
    for (const std::string& line : limits_) text += "\n" + line;
    return text;
  }
  bool wait_for_line(const std::string& pod, const std::string& line) {
    return wait([&] { return std::ranges::find(lines_[pod], line) != lines_[pod].end(); });
  }
  std::vector<std::string> lines(const std::string& pod) {
    const std::lock_guard lock(mutex_);
    return lines_[pod];
  }
  int exit_code() {
    int code = -1;
    reactor_->run_on_loop([&] { code = cluster_->exit_code(); });
    return code;
  }
  json::Value job() {
    json::Value value;
    reactor_->run_on_loop([&] { value = cluster_->job(); });
    return value;
  }
  // As `kubectl patch --type merge` of the job.
  void patch(const std::string& name, const std::string& body) {
    reactor_->run_on_loop([&] {
      http::Request request{
          "PATCH",
          "/apis/diengine.opendilab.org/v2alpha1/namespaces/default/dijobs/" + name,
          {{"Content-Type", "application/merge-patch+json"}},
          body};
      EXPECT_EQ(cluster_->request(request).status, 200);
    });
  }

  const TempFolder folder_;
  std::uint16_t api_port_ = 8081;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::string>> lines_;
  std::vector<std::string> phases_;
  std::vector<std::string> limits_;
  std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
  std::unique_ptr<Cluster> cluster_;
};

std::string one_task(const std::string& script, const std::string& more = "", int replicas = 1) {
  return fmt::format(R"(
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {{name: train}}
spec:
  tasks:
  - name: work
    type: none
    replicas: {}
    template:
      spec:
        containers:
        - name: di-container
          image: example/image:1
          command: [sh, -c, "{}"]
{})",
                     replicas, script, more);
}

TEST_F(ClusterTest, PodsKnowTheirRankNamesAndPeers) {
  ASSERT_TRUE(start(one_task("echo $DI_RANK $DI_NODES; hostname; getent hosts "
                             "train-work-1.di-train.default.svc.cluster.local | cut -d. -f1",
                             "", 2))
                  .ok());
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  EXPECT_THAT(lines("train-work-1"),
              ElementsAre("1 train-work-0.di-train.default.svc.cluster.local,"
                          "train-work-1.di-train.default.svc.cluster.local",
                          "train-work-1", "127"));
  EXPECT_EQ(exit_code(), 0);
  EXPECT_THAT(limits_, Contains(HasSubstr("image example/image:1 is not used")));
}

TEST_F(ClusterTest, TheExitCodeIsThatOfThePodThatFailed) {
  ASSERT_TRUE(start(one_task("exit 3") + "  backoffLimit: 0\n").ok());
  ASSERT_TRUE(wait_for_phase("Failed"));
  EXPECT_EQ(exit_code(), 3);
}

TEST_F(ClusterTest, AFailedPodIsRestartedWithinTheBudget) {
  const TempFolder shared;
  ASSERT_TRUE(
      start(one_task("test -e /shared/once || { touch /shared/once; kill -9 $$$$; }; echo again",
                     fmt::format("          volumeMounts: [{{name: shared, mountPath: /shared}}]\n"
                                 "        volumes: [{{name: shared, hostPath: {{path: {}}}}}]\n",
                                 shared.path())))
          .ok());
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  EXPECT_THAT(lines("train-work-0"), ElementsAre("again"));
  EXPECT_EQ(job().int_at({"status", "restarts"}).value_or(-1), 1) << json::print(job(), 1);
}

TEST_F(ClusterTest, VolumesAreAtTheirMountPaths) {
  ASSERT_TRUE(start(one_task("cat /ding/config/a.py; cat /run/keys/token; echo $WHO; echo x > "
                             "/scratch/deep/er/f && cat /scratch/deep/er/f; df /memory | grep -c "
                             "-e shm -e tmpfs; touch /ding/config/b 2>/dev/null || echo read-only",
                             R"(          env:
          - {name: WHO, valueFrom: {configMapKeyRef: {name: code, key: who}}}
          volumeMounts:
          - {name: config, mountPath: /ding/config}
          - {name: keys, mountPath: /run/keys}
          - {name: scratch, mountPath: /scratch/deep/er}
          - {name: memory, mountPath: /memory}
        volumes:
        - {name: config, configMap: {name: code}}
        - {name: keys, secret: {secretName: keys}}
        - {name: scratch, emptyDir: {}}
        - {name: memory, emptyDir: {medium: Memory}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: code}
data: {a.py: "print(1)\n", who: me}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {token: c2VjcmV0Cg==}
)"))
                  .ok());
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  EXPECT_THAT(lines("train-work-0"),
              ElementsAre("print(1)", "secret", "me", "x", "1", "read-only"));
  EXPECT_FALSE(std::filesystem::exists("/ding/config"));
}

TEST_F(ClusterTest, NothingOfThisMachineIsWritten) {
  ASSERT_TRUE(start(one_task("touch /usr/divisi_was_here /etc/divisi_was_here $HOME/mine "
                             "/tmp/mine; ls $HOME /tmp | grep -c mine"))
                  .ok());
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  EXPECT_THAT(lines("train-work-0"), Contains("2"));
  EXPECT_FALSE(std::filesystem::exists("/usr/divisi_was_here"));
  EXPECT_FALSE(std::filesystem::exists("/etc/divisi_was_here"));
  EXPECT_FALSE(std::filesystem::exists("/tmp/divisi_mine"));
}

TEST_F(ClusterTest, AJobGrowsAndShrinks) {
  ASSERT_TRUE(start(one_task("echo up $DI_RANK; exec sleep 1000")).ok());
  ASSERT_TRUE(wait_for_line("train-work-0", "up 0"));
  ASSERT_TRUE(wait_for_phase("Running"));
  json::Value spec = job();
  (*spec["spec"]["tasks"].as_array())[0]["replicas"] = 2;
  json::Value change;
  change["spec"]["tasks"] = *spec.find_path({"spec", "tasks"});
  patch("train", json::print(change));
  ASSERT_TRUE(wait_for_line("train-work-1", "up 1"));
}

TEST_F(ClusterTest, ALongLineIsCutAndNothingOfItIsLost) {
  ASSERT_TRUE(
      start(one_task("printf %0100d 1; sleep 0.2; printf %0200000d 2; echo; echo end")).ok());
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  std::size_t bytes = 0;
  for (const std::string& line : lines("train-work-0")) bytes += line.size();
  EXPECT_EQ(bytes, 200100u + 3);
}

TEST_F(ClusterTest, APodWaitsForItsConfigMapAndThenRuns) {
  ASSERT_TRUE(start(one_task("echo $WHO",
                             "          env: [{name: WHO, valueFrom: {configMapKeyRef: {name: "
                             "late, key: who}}}]\n"))
                  .ok());
  const auto waiting = [this] {
    std::string text;
    reactor_->run_on_loop([&] {
      for (const json::Value& pod : cluster_->pods()) text += json::print(pod);
    });
    return text;
  };
  divisi::testing::wait_until("the pod waits for its ConfigMap", [&] {
    return waiting().find("CreateContainerConfigError") != std::string::npos;
  });
  const std::string before = waiting();
  EXPECT_THAT(before, HasSubstr("configmap \\\"late\\\" not found"));
  reactor_->run_on_loop([&] {});
  EXPECT_EQ(waiting(), before) << "a status that says the same is not written again and again";
  reactor_->run_on_loop([&] {
    EXPECT_EQ(cluster_
                  ->request({"POST",
                             "/api/v1/namespaces/default/configmaps",
                             {},
                             R"({"metadata":{"name":"late"},"data":{"who":"me"}})"})
                  .status,
              201);
  });
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  EXPECT_THAT(lines("train-work-0"), ElementsAre("me"));
}

TEST_F(ClusterTest, RemovingAJobEndsItsProcesses) {
  ASSERT_TRUE(
      start(one_task("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")).ok());
  ASSERT_TRUE(wait_for_line("train-work-0", "up"));
  bool removed = false;
  reactor_->run_on_loop([&] {
    cluster_->remove([&] {
      const std::lock_guard lock(mutex_);
      removed = true;
      changed_.notify_all();
    });
  });
  ASSERT_TRUE(wait([&] { return removed; }));
  EXPECT_THAT(lines("train-work-0"), ElementsAre("up", "bye"));
  EXPECT_TRUE(job().is_null());
}

constexpr const char* kAskServer =
    "echo $DI_SERVER_URL; python3 -c 'import urllib.request as u, os; "
    "print(u.urlopen(os.environ[chr(68)+chr(73)+chr(95)+\\\"SERVER_"
    "URL\\\"]+\\\"/healthz\\\").status)'";

TEST_F(ClusterTest, DiServerAnswersUnderItsNameOnTheCluster) {
  ASSERT_TRUE(start(one_task(kAskServer)).ok());
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  EXPECT_THAT(lines("train-work-0"),
              ElementsAre(StartsWith("http://di-server.di-system.svc.cluster.local:"), "200"));
}

TEST_F(ClusterTest, DiServerTakesOtherPortsWhereItsOwnAreTaken) {
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::listen(taken, 1), 0);  // at all addresses, on a port that the kernel chooses
  sockaddr_in place{};
  socklen_t size = sizeof place;
  ASSERT_EQ(::getsockname(taken, reinterpret_cast<sockaddr*>(&place), &size), 0);
  api_port_ = ntohs(place.sin_port);
  ASSERT_TRUE(start(one_task(kAskServer)).ok());
  ASSERT_TRUE(wait_for_phase("Succeeded"));
  ::close(taken);
  EXPECT_THAT(lines("train-work-0"),
              ElementsAre(Not(HasSubstr(fmt::format(":{}", api_port_))), "200"));
  EXPECT_THAT(limits_, Contains(HasSubstr("is taken on all addresses")));
}

TEST(ManifestTest, SaysWhatCannotRunWithoutACluster) {
  EXPECT_THAT(read_manifest("kind: ConfigMap\nmetadata: {name: a}\n").error().message(),
              HasSubstr("no object of kind DIJob"));
  EXPECT_THAT(read_manifest("kind: Deployment\nmetadata: {name: a}\n").error().message(),
              HasSubstr("kind Deployment needs a cluster"));
  EXPECT_THAT(
      read_manifest("kind: DIJob\nmetadata: {name: a}\n---\nkind: DIJob\nmetadata: {name: b}\n")
          .error()
          .message(),
      HasSubstr("two DIJobs, a and b"));
  EXPECT_THAT(read_manifest("kind: DIJob\n").error().message(), HasSubstr("no metadata.name"));
}

}  // namespace
}  // namespace divisi::local
