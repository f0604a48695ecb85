#include "run/dijob_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::run {
namespace {

using ::testing::HasSubstr;

json::Value dijob(const char* spec) {
  json::Value job;
  job["metadata"]["name"] = "train";
  job["spec"] = *json::parse(spec);
  return job;
}

std::string mistake(const Result<json::Value>& edited) {
  return edited ? json::print(*edited) : edited.error().message();
}

TEST(DijobEditTest, TheTaskThatIsMeantHasAnotherSize) {
  const json::Value job = dijob(
      R"({"tasks": [{"type": "learner"}, {"type": "collector", "name": "c", "replicas": 2}]})");
  const auto size = [](const Result<json::Value>& edited, std::size_t task) {
    return (*edited->find_path({"spec", "tasks"})->as_array())[task].int_at({"replicas"});
  };
  EXPECT_EQ(size(with_size(job, "", 3), 1), 3);  // the collector
  EXPECT_EQ(size(with_size(job, "c", 4), 1), 4);
  EXPECT_EQ(size(with_size(job, "learner", 5), 0), 5);  // the name of its type
  EXPECT_EQ(size(with_size(job, "learner", 5), 1), 2);
  const auto gang = with_size(dijob(R"({"template": {}})"), "", 4);
  EXPECT_EQ(gang->int_at({"spec", "replicas"}), 4);
}

TEST(DijobEditTest, SaysWhichTasksThereAre) {
  const json::Value two = dijob(R"({"tasks": [{"name": "left"}, {"name": "right"}]})");
  EXPECT_THAT(mistake(with_size(two, "", 3)), HasSubstr("say which with --task left or right"));
  EXPECT_THAT(mistake(with_size(two, "rigth", 3)), HasSubstr("did you mean 'right'?"));
  EXPECT_THAT(mistake(with_size(dijob(R"({"template": {}})"), "left", 3)),
              HasSubstr("leave --task out"));
  EXPECT_THAT(mistake(with_size(dijob(R"({"coordinator": {}})"), "", 3)),
              HasSubstr("first generation"));
}

TEST(DijobEditTest, SuspendIsWritten) {
  const json::Value job = dijob(R"({"tasks": [{"name": "left"}]})");
  EXPECT_EQ(with_suspend(job, true)->bool_at({"spec", "suspend"}), true);
  EXPECT_EQ(with_suspend(job, false)->bool_at({"spec", "suspend"}), false);
  EXPECT_THAT(mistake(with_suspend(dijob(R"({"coordinator": {}})"), true)),
              HasSubstr("first generation"));
}

}  // namespace
}  // namespace divisi::run
