#include "run/options.h"

#include "base/testing/temp_folder.h"
#include "run/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Result<RunOptions> read_words(std::vector<std::string> words, const SettingsFiles& files = {}) {
  DIVISI_TRY(const CommandLine line, parse_run_line(std::move(words)));
  DIVISI_TRY(const Settings settings, gather_settings(line, files));
  return read_options(settings, line);
}

std::string mistake(std::vector<std::string> words) {
  const auto options = read_words(std::move(words));
  EXPECT_FALSE(options);
  if (options) return "no mistake";
  EXPECT_EQ(options.error().code(), Code::kInvalid);
  return options.error().message();
}

TEST(RunOptionsTest, TheLauncherLineOfTheGuide) {
  const auto options =
      read_words({"--workers", "3", "--gpus", "2", "--package", "path/to/my/package", "--main",
                  "my_module.main", "--topology", "star"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->workers, 3);
  EXPECT_EQ(options->gpus, 2);
  EXPECT_EQ(options->package, "path/to/my/package");
  EXPECT_EQ(options->main, "my_module.main");
  EXPECT_FALSE(options->backend);
  EXPECT_FALSE(options->port_given);
}

TEST(RunOptionsTest, EveryMistakeNamesItsFlag) {
  EXPECT_THAT(mistake({"--wokers", "3"}), HasSubstr("did you mean --workers?"));
  EXPECT_THAT(mistake({"--main", "m.main"}), HasSubstr("--workers N is missing"));
  EXPECT_THAT(mistake({"--workers", "0"}), HasSubstr("--workers"));
  EXPECT_THAT(mistake({"--workers", "2", "--gpus", "3"}),
              HasSubstr("--gpus: 3 GPUs for 2 workers"));
  EXPECT_THAT(mistake({"--workers", "2", "--topology", "ring"}), HasSubstr("--topology: 'ring'"));
  EXPECT_THAT(mistake({"--workers", "2", "--backend", "slrm"}), HasSubstr("did you mean 'slurm'?"));
  EXPECT_THAT(mistake({"--workers", "2", "--port", "70000"}), HasSubstr("--port"));
  EXPECT_THAT(mistake({"--workers", "2", "--env", "=b"}), HasSubstr("--env"));
  EXPECT_THAT(mistake({"--workers", "2", "--volume", "a"}), HasSubstr("--volume"));
  EXPECT_THAT(mistake({"--workers", "2", "--name", "A b"}), HasSubstr("--name"));
  EXPECT_THAT(mistake({"--workers", "2", "--timeout", "soon"}), HasSubstr("--timeout"));
  EXPECT_THAT(mistake({"--workers", "2", "--memory", "lots"}), HasSubstr("--memory"));
  EXPECT_THAT(mistake({"--workers", "2", "--main", "nodot"}), HasSubstr("--main"));
  EXPECT_THAT(mistake({"--workers", "2", "-o", "sh"}), HasSubstr("--dry-run"));
  EXPECT_THAT(mistake({"--workers", "2", "--detach", "--wait"}), HasSubstr("exclude each other"));
  EXPECT_THAT(mistake({"--workers", "2", "--backend", "ssh"}), HasSubstr("--hosts"));
  EXPECT_THAT(mistake({"--workers", "2", "--hosts", "a,b,c"}), HasSubstr("3 hosts for 2 workers"));
  EXPECT_THAT(mistake({"--workers", "2", "--"}), HasSubstr("no program after --"));
  EXPECT_THAT(mistake({"job.yaml", "--workers", "2"}), HasSubstr("--workers has no meaning"));
}

TEST(RunOptionsTest, HostsMeanSsh) {
  const auto options = read_words({"--workers", "3", "--hosts", "n[1-3]"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->backend, BackendKind::kSsh);
  EXPECT_THAT(options->hosts, ElementsAre("n1", "n2", "n3"));
  const auto users = read_words({"--workers", "4", "--hosts", "me@n[1,3],b,you@c"});
  ASSERT_TRUE(users) << users.error().message();
  EXPECT_THAT(users->hosts, ElementsAre("me@n1", "me@n3", "b", "you@c"));
  EXPECT_THAT(mistake({"--workers", "1", "--hosts", "@a"}), HasSubstr("no user"));
}

TEST(RunOptionsTest, AFlagThatIsRepeatedTakesOneValueEachTime) {
  const auto options = read_words({"--workers", "1", "-e", "A=1", "-e", "B=x=y", "--volume",
                                   "pvc:data:/data:ro", "--volume", "/mnt:/m"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_THAT(options->environment, ElementsAre(Pair("A", "1"), Pair("B", "x=y")));
  EXPECT_THAT(options->volumes,
              ElementsAre(Volume{"pvc:data", "/data", true}, Volume{"/mnt", "/m", false}));
}

TEST(RunSettingsTest, TheCommandLineWinsOverTheProjectAndThatOverTheUser) {
  const testing::TempFolder folder;
  const SettingsFiles files{
      .user =
          folder.write("config.yaml", "image: site/image:1\nport: 6000\nenv: {A: site, B: site}\n"),
      .project = folder.write("divisi.yaml", "port: 7000\nenv: {A: project}\n")};
  const auto options = read_words({"--workers", "2", "--env", "C=line"}, files);
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->image, "site/image:1");
  EXPECT_EQ(options->port, 7000);
  EXPECT_TRUE(options->port_given);
  EXPECT_THAT(options->environment,
              ElementsAre(Pair("B", "site"), Pair("A", "project"), Pair("C", "line")));
  const auto line = parse_run_line({"--workers", "2"});
  const auto settings = gather_settings(*line, files);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->at("port").origin, files.project);
  EXPECT_EQ(settings->at("image").origin, files.user);
  EXPECT_EQ(settings->at("topology").origin, "default");
  EXPECT_THAT(explain(*settings), HasSubstr("7000"));
}

TEST(RunSettingsTest, AFileWithAMistakeIsNamed) {
  const auto unknown = read_settings("imgae: x\n", "the file");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message(), "the file: 'imgae' is no setting, did you mean 'image'?");
  EXPECT_FALSE(read_settings("dry-run: true\n", "f"));
  EXPECT_FALSE(read_settings("port: {a: 1}\n", "f"));
  EXPECT_FALSE(read_settings("- a\n", "f"));
  EXPECT_FALSE(read_settings("a: [\n", "f"));
  EXPECT_TRUE(read_settings("", "f"));
  const testing::TempFolder folder;
  const auto options = read_words({"--workers", "1"},
                                  {.user = folder.write("c.yaml", "port: none\n"), .project = {}});
  ASSERT_FALSE(options);
  EXPECT_THAT(options.error().message(), HasSubstr("c.yaml: port"));
}

TEST(RunSettingsTest, TheProjectsFileIsInThePackageOrBesideIt) {
  const testing::TempFolder folder;
  folder.write("pkg/m.py", "");
  const std::string beside = folder.write("divisi.yaml", "port: 1\n");
  EXPECT_EQ(find_settings_files({}, folder / "pkg").project, beside);
  const std::string inside = folder.write("pkg/divisi.yaml", "port: 2\n");
  EXPECT_EQ(find_settings_files({}, folder / "pkg").project, inside);
}

}  // namespace
}  // namespace divisi::run
