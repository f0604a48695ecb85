#include "run/package_store.h"

#include "run/frames.h"
#include "run/slurm_worker.h"
#include "run/ssh_link.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <utime.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PackageStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "package_store_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / "source" / name).parent_path());
    std::ofstream(folder_ / "source" / name, std::ios::binary) << text;
  }
  PackageCut cut() {
    PackageCut cut;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "source")) {
      if (!entry.is_regular_file()) continue;
      const std::string text = read(entry.path());
      cut.files.push_back({.path = fs::relative(entry.path(), folder_ / "source").string(),
                           .source = entry.path().string(),
                           .size = text.size(),
                           .executable = false,
                           .digest = digest_of_text(text)});
    }
    std::ranges::sort(cut.files, {}, &PackageFile::path);
    return cut;
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  PackageStore store() const { return PackageStore((folder_ / "store").string()); }

  fs::path folder_;
};

TEST_F(PackageStoreTest, ATreeComesOutAsItWentIn) {
  write("a.py", "a = 1\n");
  write("sub/b.py", "b = 2\n");
  write("sub/empty", "");
  const PackageTree tree = make_tree(cut());
  const auto bytes = store().add_all(tree);
  ASSERT_TRUE(bytes) << bytes.error().message();
  EXPECT_GT(*bytes, 0U);
  EXPECT_EQ(store().add_all(tree).value_or(1), 0U);
  const std::string target = (folder_ / "target").string();
  ASSERT_TRUE(store().build(tree.root, target).ok());
  EXPECT_EQ(read(target + "/a.py"), "a = 1\n");
  EXPECT_EQ(read(target + "/sub/b.py"), "b = 2\n");
  EXPECT_TRUE(fs::exists(target + "/sub/empty"));
}

TEST_F(PackageStoreTest, OneChangedFileOfManyCostsLittle) {
  for (int i = 0; i < 2000; ++i) write(fmt::format("f{}.py", i), fmt::format("value = {}\n", i));
  ASSERT_TRUE(store().add_all(make_tree(cut())));
  write("f1234.py", "value = 'new'\n");
  const auto bytes = store().add_all(make_tree(cut()));
  ASSERT_TRUE(bytes);
  EXPECT_GT(*bytes, 0U);
  EXPECT_LT(*bytes, 32U << 10);
}

TEST_F(PackageStoreTest, WhatIsNotItsDigestIsNotKept) {
  auto incoming = store().add(digest_of_text("right"));
  ASSERT_TRUE(incoming);
  ASSERT_TRUE(incoming->write("wrong").ok());
  EXPECT_EQ(incoming->finish().code(), Code::kInvalid);
  EXPECT_FALSE(store().add("../../etc/passwd"));
}

TEST_F(PackageStoreTest, ADamagedFileFailsTheBuildAndIsSentAgain) {
  write("a.py", "a = 1\n");
  const PackageTree tree = make_tree(cut());
  ASSERT_TRUE(store().add_all(tree));
  const std::string digest = digest_of_text("a = 1\n");
  std::ofstream(folder_ / "store/blobs" / digest.substr(0, 2) / digest.substr(2)) << "a = 2\n";
  const Status status = store().build(tree.root, (folder_ / "target").string());
  EXPECT_THAT(status.message(), HasSubstr("damaged"));
  EXPECT_EQ(store().missing(tree.root).value_or(std::vector<std::string>{}),
            std::vector<std::string>{digest});
}

TEST_F(PackageStoreTest, WhatWasNotUsedForLongGoesAndRunsThatAreHeldStay) {
  write("a.py", "a = 1\n");
  const PackageTree tree = make_tree(cut());
  ASSERT_TRUE(store().add_all(tree));
  const std::string digest = digest_of_text("a = 1\n");
  const fs::path blob = folder_ / "store/blobs" / digest.substr(0, 2) / digest.substr(2);
  auto held = store().make_run("held");
  auto left = store().make_run("left");
  ASSERT_TRUE(held && left);
  left->lock.reset();
  const utimbuf old{.actime = 1000, .modtime = 1000};
  for (const std::string& path : {blob.string(), held->folder, left->folder}) {
    ASSERT_EQ(::utime(path.c_str(), &old), 0);
  }
  store().clean();
  EXPECT_FALSE(fs::exists(blob));
  EXPECT_TRUE(fs::exists(held->folder));
  EXPECT_FALSE(fs::exists(left->folder));
}

TEST(FramesTest, FramesComeInAnyPiecesBehindTheGreeting) {
  const std::string bytes =
      "Welcome to this host\n" + std::string(kGreeting) + frame('V', "{}") + frame('o', "a\0b");
  FrameReader reader(true);
  std::string types;
  for (const char c : bytes) {
    reader.add({&c, 1});
    while (true) {
      auto found = reader.next();
      ASSERT_TRUE(found);
      if (!*found) break;
      types += (*found)->type;
    }
  }
  EXPECT_EQ(types, "Vo");
  FrameReader broken(false);
  broken.add("x\xff\xff\xff\xff");
  EXPECT_FALSE(broken.next());
}

TEST(SshTest, FailuresAreOneLineThatNamesTheHost) {
  const auto explain = [](std::string_view text) { return explain_ssh_failure("me@b", text); };
  EXPECT_THAT(explain("@@@@@\n@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\r\n@@@\nmore\n"
                      "Host key verification failed.\r\n"),
              AllOf(HasSubstr("host me@b: its key is another one"), HasSubstr("ssh-keygen -R b"),
                    Not(HasSubstr("\n"))));
  EXPECT_THAT(explain("Host key verification failed.\r\n"), HasSubstr("not in known_hosts"));
  EXPECT_THAT(explain("me@b: Permission denied (publickey).\r\n"), HasSubstr("refuses us"));
  EXPECT_EQ(explain("ssh: connect to host b port 22: Connection refused\r\n"),
            "host me@b: ssh: connect to host b port 22: Connection refused");
  EXPECT_EQ(explain(""), "host me@b: ssh ended without a word");
}

TEST(SlurmTest, ReadsHowAJobStands) {
  const SlurmState failed = parse_scontrol(
      "JobId=1 JobName=x JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0 RunTime=1 "
      "DerivedExitCode=0:0");
  EXPECT_EQ(failed.state, "FAILED");
  EXPECT_EQ(failed.code, 3);
  EXPECT_TRUE(failed.ended());
  EXPECT_FALSE(parse_scontrol("JobId=1 JobState=RUNNING ExitCode=0:0").ended());
  EXPECT_EQ(parse_sacct("CANCELLED by 1000|0:15\n").state, "CANCELLED");
  EXPECT_EQ(parse_sacct("CANCELLED by 1000|0:15\n").code, 128 + 15);
  EXPECT_FALSE(parse_sacct("").ended());
  const SlurmFailure first = first_slurm_failure(
      "slurmstepd: error: x\nsrun: error: n1: task 1: Exited with exit code 3\n"
      "srun: error: n1: tasks 0,2: Exited with exit code 143\n");
  EXPECT_EQ(first.text, "worker 1: Exited with exit code 3");
  EXPECT_EQ(first.code, 3);
  EXPECT_EQ(first_slurm_failure("srun: error: n1: task 0: Killed\n").code, 0);
}

}  // namespace
}  // namespace divisi::run
