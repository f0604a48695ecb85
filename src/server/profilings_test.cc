// Profilings: what engines report reaches the status, seldom and completely.
#include "server/profilings.h"

#include "server/api_testing.h"

#include <limits>
#include <vector>

namespace divisi::server {
namespace {

using namespace testing;

class ProfilingsTest : public ApiFixture {
 protected:
  ProfilingsTest() { put_tasks_job(); }

  std::shared_ptr<Seen> report(const std::string& body) {
    return ask("POST", "/v2alpha1/job/default.rl/profilings", body);
  }
  std::string stored(const std::string& key = "profilings") const {
    const json::Value* found = job().find_path({"status", key});
    return found == nullptr ? "missing" : json::print(*found);
  }
  // How often anything was written since.
  std::uint64_t writes_since(std::uint64_t version) const {
    return cluster_.store.version() - version;
  }
};

TEST_F(ProfilingsTest, O080_AreInTheStatus) {
  const auto seen = report(R"({"data": {"loss": 0.5, "steps": [1, 2]}})");
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->json(), *json::parse(R"({"success":true,"code":0,
      "message":"successfully report profilings","data":null})"));
  loop_.run_for(1s);
  EXPECT_EQ(stored(), R"({"data":{"loss":0.5,"steps":[1,2]}})");
  EXPECT_EQ(job().string_at({"status", "phase"}), "Running") << "what others wrote stays";
}

TEST_F(ProfilingsTest, OD12_AreMergedKeyByKeyAndNullRemoves) {
  report(R"({"a": {"x": 1, "y": 2}, "b": 1})");
  loop_.run_for(5s);
  report(R"({"a": {"y": 3, "z": null}, "b": null, "c": true})");
  loop_.run_for(5s);
  EXPECT_EQ(stored(), R"({"a":{"x":1,"y":3},"c":true})");
}

TEST_F(ProfilingsTest, AFloodIsWrittenOnceInTwoSecondsAndTheLastStateAlways) {
  wait_in_step();
  const std::uint64_t before = cluster_.store.version();
  for (int i = 1; i <= 1000; ++i) {
    report(fmt::format(R"({{"step": {}, "of": {{"worker-{}": {}}}}})", i, i % 3, i));
    loop_.run_for(10ms);
  }
  EXPECT_LE(writes_since(before), 6u);
  EXPECT_GE(writes_since(before), 5u);
  loop_.run_for(5s);
  EXPECT_EQ(stored(), R"({"step":1000,"of":{"worker-1":1000,"worker-2":998,"worker-0":999}})");
  const std::uint64_t quiet = cluster_.store.version();
  loop_.run_for(1min);
  EXPECT_EQ(writes_since(quiet), 0u);
}

TEST_F(ProfilingsTest, OfTwoServersNoneOverwritesTheOther) {
  Replica other(loop_, cluster_, {});
  for (int i = 0; i < 20; ++i) {
    send({"POST", "/v2alpha1/job/default.rl/profilings", {}, fmt::format(R"({{"a{}": 1}})", i)});
    send({"POST", "/v2alpha1/job/default.rl/profilings", {}, fmt::format(R"({{"b{}": 1}})", i)},
         &other);
    loop_.run_for(300ms);
  }
  loop_.run_for(10s);
  EXPECT_EQ(job().find_path({"status", "profilings"})->as_object()->size(), 40u);
}

TEST_F(ProfilingsTest, AreWrittenInSpiteOfFaultsOfTheCluster) {
  wait_in_step();
  cluster_.faults.refuse = 0.5;
  cluster_.faults.lose_request = 0.2;
  cluster_.faults.lose_answer = 0.2;
  cluster_.faults.conflict = 0.5;
  report(R"({"first": 1})");
  loop_.run_for(1min);
  report(R"({"last": 2})");
  loop_.run_for(20min);
  EXPECT_EQ(stored(), R"({"first":1,"last":2})");
}

TEST_F(ProfilingsTest, AServerThatStopsWritesWhatStillWaits) {
  wait_in_step();
  put_tasks_job("other");
  report(R"({"first": 1})");
  report(R"({"second": 2})");
  ask("POST", "/v2alpha1/job/default.other/profilings", "{}");
  bool drained = false;
  server_->api.drain([&] { drained = true; });
  ASSERT_TRUE(loop_.run_until([&] { return drained; }, 1s));
  EXPECT_EQ(stored(), R"({"first":1,"second":2})");
}

TEST_F(ProfilingsTest, AServerThatStopsWaitsForNoClusterThatIsAway) {
  wait_in_step();
  report(R"({"first": 1})");
  cluster_.faults.lose_request = 1;
  report(R"({"second": 2})");
  bool drained = false;
  server_->api.drain([&] { drained = true; });
  EXPECT_TRUE(loop_.run_until([&] { return drained; }, 2min));
}

TEST_F(ProfilingsTest, OfAJobThatWasMadeAnewAreNotThoseOfTheOneBefore) {
  wait_in_step();
  report(R"({"a": 1})");
  report(R"({"b": 1})");  // waits
  remove(kJobs, "rl");
  put_tasks_job();
  loop_.run_for(10s);
  EXPECT_EQ(stored(), "missing");
  report(R"({"c": 1})");
  loop_.run_for(10s);
  EXPECT_EQ(stored(), R"({"c":1})");
}

TEST_F(ProfilingsTest, ThatAreNoObjectOrTooMuchAreRefusedWithAReason) {
  for (const char* body : {"", "5", "[]", "null", "\"text\"", "{\"a\":}", "{\"a\": NaN}"}) {
    EXPECT_EQ(report(body)->status, 400) << body;
  }
  const auto filler = [](char key) {
    return fmt::format(R"({{"{}": "{}"}})", key, std::string(40'000, 'x'));
  };
  EXPECT_EQ(report(fmt::format(R"({{"a": "{}"}})", std::string(70'000, 'x')))->status, 400);
  EXPECT_EQ(report(filler('a'))->status, 200);
  const auto waiting = report(filler('b'));
  EXPECT_EQ(waiting->status, 400);
  EXPECT_NE(waiting->message().find("more than 65536"), std::string::npos) << waiting->message();
  loop_.run_for(10s);
  EXPECT_EQ(report(filler('b'))->status, 400) << "with what is written";
  EXPECT_EQ(report(filler('a'))->status, 200) << "in its place";
  EXPECT_EQ(report(R"({"a": null})")->status, 200);
  loop_.run_for(10s);
  EXPECT_EQ(report(filler('b'))->status, 200);
}

TEST_F(ProfilingsTest, ReportsThatOnlyRemoveAreBoundedToo) {
  wait_in_step();
  cluster_.faults.lose_request = 1;  // nothing is written
  int taken = 0;
  for (int i = 0; i < 100; ++i) {
    const auto seen = report(fmt::format(R"({{"{}-{}": null}})", std::string(1000, 'k'), i));
    taken += seen->status == 200 ? 1 : 0;
  }
  EXPECT_LT(taken, 66);
  EXPECT_GT(taken, 60);
}

TEST_F(ProfilingsTest, ProgressBecomesColumns) {
  report(
      R"({"progress": {"env_steps_per_second": 12345.678, "return": 195.25, "eta_seconds": 7500}})");
  loop_.run_for(5s);
  EXPECT_EQ(stored("progress"), R"({"stepsPerSecond":"12346","return":"195.2","eta":"2h5m"})");
  report(
      R"({"data": {"progress": {"return": -3, "eta_seconds": null, "env_steps_per_second": "?"}}})");
  loop_.run_for(5s);
  EXPECT_EQ(stored("progress"), R"({"stepsPerSecond":"12346","return":"-3"})");
  EXPECT_EQ(report(R"({"progress": 7})")->status, 200) << "free text has no wrong form";
  loop_.run_for(5s);
  EXPECT_EQ(stored("progress"), R"({"stepsPerSecond":"12346","return":"-3"})");
}

TEST(ProgressTextTest, IsShort) {
  EXPECT_EQ(short_duration(0), "0s");
  EXPECT_EQ(short_duration(59.6), "1m");
  EXPECT_EQ(short_duration(61), "1m1s");
  EXPECT_EQ(short_duration(3600), "1h");
  EXPECT_EQ(short_duration(3601), "1h");
  EXPECT_EQ(short_duration(90061), "1d1h");
  EXPECT_EQ(short_duration(-1), "");
  EXPECT_EQ(short_duration(1e300), "");
  EXPECT_EQ(short_duration(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_EQ(short_number(0.123456), "0.1235");
  EXPECT_EQ(short_number(-1234567.8), "-1234568");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(1e12), "1e+12");
}

}  // namespace
}  // namespace divisi::server
