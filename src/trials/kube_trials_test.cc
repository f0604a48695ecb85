#include "trials/kube_trials.h"

#include "kube/testing/fake_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

namespace divisi::trials {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = TrialEvent::Kind;

constexpr const char* kJobs = "/apis/diengine.opendilab.org/v2alpha1/dijobs";
constexpr const char* kMaps = "/api/v1/configmaps";
constexpr const char* kPods = "/api/v1/pods";

JobTemplate small_template(const std::string& volume = "emptyDir: {}") {
  return *JobTemplate::parse(fmt::format(R"(
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {{name: t}}
spec:
  projectPath: /hpo
  tasks:
  - name: serial
    template:
      spec:
        containers:
        - name: c
          volumeMounts: [{{name: v, mountPath: /hpo}}]
        volumes:
        - name: config-py
          configMap: {{}}
        - name: v
          {}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: c}}
)",
                                         volume),
                             "t.yml", {});
}

class KubeTrialsTest : public ::testing::Test {
 protected:
  void open(KubeTrialsOptions options = {}, const std::string& volume = "emptyDir: {}") {
    options.space = "s";
    options.project = "p";
    trials_ = std::make_unique<KubeTrials>(client_, small_template(volume), options,
                                           [this](TrialEvent event) { heard(std::move(event)); });
    trials_->start();
  }

  void heard(TrialEvent event) {
    if (event.kind == Kind::kNotice) return notices_.push_back(event.text);
    if (event.kind == Kind::kEnded) ends_[event.name].push_back(event);
    if (event.kind == Kind::kSuspected) suspects_.insert(event.name);
    if (event.kind == Kind::kBack) suspects_.erase(event.name);
    if (event.kind == Kind::kStarted) started_.insert(event.name);
    if (event.kind == Kind::kReports) reports_ += event.text;
    if (event.kind != Kind::kLook) return;
    if (hold_looks_) {
      held_ = event.name;
      return;
    }
    Verdict verdict = ready_.contains(event.name) ? Verdict::kAccepted : Verdict::kNothing;
    const bool posted = event.found.result.has_value();
    if (posted) looks_at_posts_.push_back(event.found.result->bytes);
    if (posted) verdict = looks_at_posts_.back() == "good" ? Verdict::kAccepted : Verdict::kBad;
    loop_.post([this, verdict, name = event.name] {
      trials_->judge(name, verdict, verdict == Verdict::kBad ? "the post is bad" : "");
    });
  }

  void run(const std::string& name) {
    trials_->run({.name = name, .trial = "1", .project = "p", .study = "p", .run = "r"});
  }

  // As the operator and the kubelet would.
  void pod(const std::string& name, const std::string& phase) {
    json::Value object;
    object["metadata"]["name"] = name;
    object["metadata"]["namespace"] = "s";
    object["metadata"]["labels"][kProjectLabel] = "p";
    object["status"]["phase"] = phase;
    if (api_.store.find(kPods, "s/" + name) == nullptr) {
      api_.store.create(kPods, "s/" + name, std::move(object), "2026-11-15T10:00:00Z");
    } else {
      api_.store.update(kPods, "s/" + name, std::move(object));
    }
    api_.changed();
  }
  // As di-server would.
  void posted(const std::string& name, const char* trial) {
    json::Value job = *api_.store.find(kJobs, "s/" + name);
    job["status"]["trial"] = *json::parse(trial);
    api_.store.update(kJobs, "s/" + name, std::move(job));
    api_.changed();
    loop_.run_for(1s);
  }
  void no_pod(const std::string& name) {
    api_.store.remove(kPods, "s/" + name);
    api_.changed();
  }
  bool has(const char* collection, const std::string& name) {
    return api_.store.find(collection, "s/" + name) != nullptr;
  }
  bool until(const std::function<bool()>& done) { return loop_.run_until(done, 1h); }

  kube::testing::SimLoop loop_;
  kube::testing::FakeApi api_{loop_, 1};
  kube::Client client_{loop_, api_};
  std::unique_ptr<KubeTrials> trials_;
  std::map<std::string, std::vector<TrialEvent>> ends_;
  std::set<std::string> suspects_;
  std::set<std::string> started_;
  std::set<std::string> ready_;  // trials that have a result
  std::vector<std::string> notices_;
  std::string reports_;
  std::vector<std::string> looks_at_posts_;
  bool hold_looks_ = false;  // the test judges
  std::string held_;         // the last look that was held
};

TEST_F(KubeTrialsTest, H090OnlyAPodThatRunsHasStarted) {
  open();
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  EXPECT_TRUE(has(kMaps, "config-py-p-0"));
  pod("p-0-serial-0", "Pending");
  loop_.run_for(1min);
  EXPECT_TRUE(started_.empty());
  pod("p-0-serial-0", "Running");
  EXPECT_TRUE(until([&] { return started_.contains("p-0"); }));
}

TEST_F(KubeTrialsTest, H095AVanishedPodIsASuspectUntilItIsLost) {
  open();
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return started_.contains("p-0"); }));
  no_pod("p-0-serial-0");
  ASSERT_TRUE(until([&] { return suspects_.contains("p-0"); }));
  loop_.run_for(170s);
  EXPECT_TRUE(ends_.empty());
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return suspects_.empty(); }));
  loop_.run_for(300s);
  EXPECT_TRUE(ends_.empty());
  no_pod("p-0-serial-0");
  ASSERT_TRUE(until([&] { return suspects_.contains("p-0"); }));
  loop_.run_for(200s);
  ASSERT_EQ(ends_["p-0"].size(), 1U);
  EXPECT_EQ(ends_["p-0"][0].status, "fail");
  EXPECT_THAT(ends_["p-0"][0].text, HasSubstr("p-0-serial-0 is gone"));
  EXPECT_FALSE(has(kJobs, "p-0") || has(kMaps, "config-py-p-0"));
}

TEST_F(KubeTrialsTest, H094TheTimeOfATrialBeginsWithItsPod) {
  open({.time_out = 60s});
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  loop_.run_for(10min);
  EXPECT_TRUE(ends_.empty());
  pod("p-0-serial-0", "Running");
  loop_.run_for(59s);
  EXPECT_TRUE(ends_.empty());
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "time out");
}

TEST_F(KubeTrialsTest, AResultThatWasWrittenLastIsStillFound) {
  open({.poll_every = 1h});
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return started_.contains("p-0"); }));
  loop_.run_for(1min);
  ready_.insert("p-0");
  pod("p-0-serial-0", "Succeeded");
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
}

TEST_F(KubeTrialsTest, ALookThatBeganBeforeTheEndOfThePodIsNotTheLastOne) {
  open({.poll_every = 1h});
  hold_looks_ = true;
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return held_ == "p-0"; }));
  pod("p-0-serial-0", "Succeeded");
  loop_.run_for(1min);
  ready_.insert("p-0");  // written after that look, and before the end
  hold_looks_ = false;
  trials_->judge("p-0", Verdict::kNothing, {});
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
}

TEST_F(KubeTrialsTest, WhatSomebodyElseMadeUnderThatNameStays) {
  for (const char* const collection : {kMaps, kJobs}) {
    const bool is_map = collection == kMaps;
    const std::string name = is_map ? "p-0" : "p-1";
    open();
    bool refused = false;
    api_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
      const bool meant = request.method == "POST" &&
                         request.target.find(is_map ? "configmaps" : "dijobs") != std::string::npos;
      if (!meant || std::exchange(refused, true)) return std::nullopt;
      return http::Response{.status = 503};
    };
    run(name);
    ASSERT_TRUE(until([&] { return !notices_.empty(); }));
    json::Value object;
    object["metadata"]["name"] = is_map ? config_map_name(name) : name;
    object["metadata"]["namespace"] = "s";
    const std::string key(object.string_at({"metadata", "name"}));
    api_.store.create(collection, "s/" + key, std::move(object), "2026-11-15T10:00:00Z");
    ASSERT_TRUE(until([&] { return ends_.contains(name); }));
    EXPECT_THAT(ends_[name][0].text, HasSubstr("not of this scheduler"));
    ASSERT_TRUE(until([&] { return trials_->left() == 0; }));
    EXPECT_TRUE(has(collection, key)) << collection;
    notices_.clear();
  }
}

TEST_F(KubeTrialsTest, AHelperLooksOnTheVolumeOfAPodThatIsGone) {
  open({}, "hostPath: {path: /lustre}");
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  pod("p-0-serial-0", "Succeeded");
  ASSERT_TRUE(until([&] { return has(kPods, "p-0-results"); }));
  loop_.run_for(10s);
  EXPECT_TRUE(ends_.empty());
  ready_.insert("p-0");
  pod("p-0-results", "Running");
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
  EXPECT_TRUE(until([&] { return !has(kPods, "p-0-results"); }));
}

TEST_F(KubeTrialsTest, AHelperThatDoesNotStartIsGivenUp) {
  open({}, "hostPath: {path: /lustre}");
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  pod("p-0-serial-0", "Succeeded");
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_THAT(ends_["p-0"][0].text, HasSubstr("it did not start in time"));
}

TEST_F(KubeTrialsTest, AStepThatGetsFurtherFiguresIsToldAgain) {
  open();
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  posted("p-0", R"({"reports": {"3": {"loss": 1}, "x": {"loss": 1}}})");
  EXPECT_EQ(std::exchange(reports_, {}), "{\"step\":3,\"values\":{\"loss\":1}}\n");
  posted("p-0", R"({"reports": {"3": {"loss": 1, "reward": "nan"}}})");
  EXPECT_EQ(std::exchange(reports_, {}), "{\"step\":3,\"values\":{\"loss\":1,\"reward\":null}}\n");
  posted("p-0", R"({"reports": {"3": {"loss": 1, "reward": "nan"}}, "trouble": "no"})");
  EXPECT_EQ(reports_, "");
  posted("p-0", R"({"reports": {"2": {"loss": 1}, "3": {"loss": 2}, "4": {"loss": 4}}})");
  EXPECT_EQ(reports_,
            "{\"step\":3,\"values\":{\"loss\":2}}\n{\"step\":4,\"values\":{\"loss\":4}}\n");
}

constexpr const char* kBadPost = R"({"result": {"name": "result.json", "bytes": "YmFk"}})";
constexpr const char* kGoodPost = R"({"result": {"name": "result.json", "bytes": "Z29vZA=="}})";

TEST_F(KubeTrialsTest, ABadPostHidesNoFile) {
  open();
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  ready_.insert("p-0");  // in the pod
  posted("p-0", kBadPost);
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
  EXPECT_THAT(looks_at_posts_, ElementsAre("bad"));
}

TEST_F(KubeTrialsTest, ABadPostHidesNoFileOfTheVolume) {
  open({}, "hostPath: {path: /lustre}");
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  posted("p-0", kBadPost);
  pod("p-0-serial-0", "Succeeded");
  ASSERT_TRUE(until([&] { return has(kPods, "p-0-results"); }));
  ready_.insert("p-0");
  pod("p-0-results", "Running");
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
}

TEST_F(KubeTrialsTest, ABadPostAloneFailsItsTrial) {
  for (const char* const phase : {"Running", "Succeeded"}) {
    open();
    ends_.clear();
    looks_at_posts_.clear();
    const std::string name = fmt::format("p-{}", phase == std::string("Running") ? 0 : 1);
    run(name);
    ASSERT_TRUE(until([&] { return has(kJobs, name); }));
    posted(name, kBadPost);
    pod(name + "-serial-0", phase);
    ASSERT_TRUE(until([&] { return !ends_.empty(); }));
    EXPECT_EQ(ends_[name][0].status, "fail") << phase;
    EXPECT_THAT(ends_[name][0].text, HasSubstr("the post is bad")) << phase;
    EXPECT_THAT(looks_at_posts_, ElementsAre("bad")) << phase;
  }
}

TEST_F(KubeTrialsTest, AnEmptyPostIsABadOne) {
  open();
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  posted("p-0", R"({"result": {"name": "result.json", "bytes": ""}})");
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_THAT(ends_["p-0"][0].text, HasSubstr("the post is bad"));
}

TEST_F(KubeTrialsTest, AGoodPostFollowsABadOne) {
  open({.poll_every = 1h});
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  posted("p-0", kBadPost);
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return !looks_at_posts_.empty(); }));
  posted("p-0", kGoodPost);
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
  EXPECT_THAT(looks_at_posts_, ElementsAre("bad", "good"));
}

TEST_F(KubeTrialsTest, APostThatComesDuringALookIsLookedAtNext) {
  open({.poll_every = 24h});
  hold_looks_ = true;
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  pod("p-0-serial-0", "Running");
  ASSERT_TRUE(until([&] { return held_ == "p-0"; }));
  posted("p-0", kGoodPost);
  hold_looks_ = false;
  trials_->judge("p-0", Verdict::kNothing, {});
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
}

TEST_F(KubeTrialsTest, AJobIsAdoptedAsItIs) {
  open();
  loop_.run_for(1s);
  run("p-0");
  ASSERT_TRUE(until([&] { return has(kJobs, "p-0"); }));
  pod("p-0-serial-0", "Running");
  loop_.run_for(1s);
  started_.clear();
  open();  // the one before left its job
  ASSERT_TRUE(until([&] { return trials_->synced(); }));
  ready_.insert("p-0");
  trials_->adopt("p-0");
  ASSERT_TRUE(until([&] { return !ends_.empty(); }));
  EXPECT_EQ(ends_["p-0"][0].status, "success");
  EXPECT_FALSE(has(kJobs, "p-0"));
}

TEST_F(KubeTrialsTest, ACancelDuringTheCreationLeavesNothing) {
  open();
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("p-{}", i);
    run(name);
    loop_.run_for(std::chrono::microseconds(i * 250));
    trials_->cancel(name);
  }
  ASSERT_TRUE(until([&] { return trials_->left() == 0; }));
  EXPECT_EQ(ends_.size(), 40U);
  EXPECT_TRUE(api_.store.all(kJobs).empty());
  EXPECT_TRUE(api_.store.all(kMaps).empty());
}

// Whatever the server and the network do, each trial ends once, as it should, and nothing is left.
TEST(KubeTrialsStormTest, FaultsLoseAndRepeatNoTrial) {
  const int seeds = std::getenv("DIVISI_SOAK") != nullptr ? 400 : 20;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    kube::testing::SimLoop loop;
    kube::testing::FakeApi api(loop, static_cast<std::uint64_t>(seed));
    api.faults = {.refuse = 0.1,
                  .lose_answer = 0.05,
                  .lose_request = 0.05,
                  .cut_stream = 0.1,
                  .repeat_event = 0.1,
                  .garbage = 0.02,
                  .compact = 0.02};
    kube::Client client(loop, api);
    std::map<std::string, std::string> ended;
    int twice = 0;
    std::unique_ptr<KubeTrials> trials;
    trials = std::make_unique<KubeTrials>(
        client, small_template(), KubeTrialsOptions{.space = "s", .project = "p"},
        [&](const TrialEvent& event) {
          if (event.kind == Kind::kEnded && !ended.emplace(event.name, event.status).second)
            ++twice;
          if (event.kind != Kind::kLook) return;
          loop.post([&trials, name = event.name] { trials->judge(name, Verdict::kAccepted, {}); });
        });
    trials->start();
    constexpr int kTrials = 10;
    for (int i = 0; i < kTrials; ++i) {
      trials->run({.name = fmt::format("p-{}", i), .project = "p", .run = "r"});
    }
    std::set<std::string> played;
    const bool all = loop.run_until(
        [&] {
          for (const auto& [key, job] : api.store.all(kJobs)) {
            if (!played.insert(key).second) continue;
            json::Value pod;
            pod["metadata"]["name"] = key.substr(2) + "-serial-0";
            pod["metadata"]["namespace"] = "s";
            pod["metadata"]["labels"][kProjectLabel] = "p";
            pod["status"]["phase"] = "Running";
            api.store.create(kPods, key + "-serial-0", std::move(pod), "2026-11-15T10:00:00Z");
            api.changed();
          }
          return trials->left() == 0;
        },
        10h);
    EXPECT_TRUE(all);
    EXPECT_EQ(twice, 0);
    EXPECT_EQ(ended.size(), static_cast<std::size_t>(kTrials));
    for (const auto& [name, status] : ended) EXPECT_EQ(status, "success") << name;
    EXPECT_TRUE(api.store.all(kJobs).empty());
    EXPECT_TRUE(api.store.all(kMaps).empty());
  }
}

}  // namespace
}  // namespace divisi::trials
