#include "run/package.h"

#include "base/testing/temp_folder.h"
#include "launch/archive.h"
#include "run/digest_cache.h"
#include "run/package_zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <sys/stat.h>

namespace divisi::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kModule = "def main():\n    pass\n";

std::vector<std::string> paths(const PackageCut& cut) {
  std::vector<std::string> found;
  for (const PackageFile& file : cut.files) found.push_back(file.path);
  return found;
}

CutOptions of(const std::string& path, const std::string& main) {
  CutOptions options;
  options.path = path;
  options.main = main;
  return options;
}

TEST(PackageCutTest, WhatGitIgnoresStaysHere) {
  const testing::TempFolder folder;
  folder.write("m.py", kModule);
  folder.write("data/big.bin", "x");
  folder.write("data/.gitignore", "*.bin\n");
  folder.write(".gitignore", "runs/\n");
  folder.write("runs/log", "x");
  folder.write(".git/HEAD", "x");
  folder.write("__pycache__/m.pyc", "x");
  const auto cut = cut_package(of(folder.path(), "m.main"));
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_THAT(paths(*cut), ElementsAre(".gitignore", "data/.gitignore", "m.py"));
  EXPECT_EQ(cut->entry, "m.main");
  EXPECT_TRUE(cut->is_python);
}

TEST(PackageCutTest, TheDigestIsOfNamesModesAndContents) {
  const testing::TempFolder folder;
  folder.write("m.py", kModule);
  const auto first = cut_package(of(folder.path(), "m.main"));
  ASSERT_TRUE(first);
  folder.write("m.py", kModule);  // another time of change only
  EXPECT_EQ(cut_package(of(folder.path(), "m.main"))->digest, first->digest);
  std::filesystem::permissions(folder / "m.py", std::filesystem::perms::owner_all);
  const auto executable = cut_package(of(folder.path(), "m.main"));
  EXPECT_NE(executable->digest, first->digest);
  folder.write("m.py", std::string(kModule) + "\n");
  EXPECT_NE(cut_package(of(folder.path(), "m.main"))->digest, first->digest);
}

TEST(PackageCutTest, TooMuchIsRefusedWithTheBiggestFiles) {
  const testing::TempFolder folder;
  folder.write("m.py", kModule);
  folder.write("weights.bin", std::string(5000, 'x'));
  CutOptions options = of(folder.path(), "m.main");
  options.max_bytes = 1000;
  const auto cut = cut_package(options);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code(), Code::kForbidden);
  EXPECT_THAT(cut.error().message(),
              AllOf(HasSubstr("weights.bin (4.9 KiB)"), HasSubstr(".gitignore")));
}

TEST(PackageCutTest, AnEntryThatIsNotThereIsFoundOutAtOnce) {
  const testing::TempFolder folder;
  folder.write("m.py", kModule);
  const auto module = cut_package(of(folder.path(), "other_module_of_nobody.main"));
  ASSERT_FALSE(module);
  EXPECT_THAT(module.error().message(), HasSubstr("--main other_module_of_nobody.main"));
  const auto function = cut_package(of(folder.path(), "m.train"));
  ASSERT_FALSE(function);
  EXPECT_THAT(function.error().message(), HasSubstr("has no function train"));
  EXPECT_FALSE(cut_package(of(folder / "nowhere", "m.main")));
}

TEST(PackageCutTest, AModuleThatMayMakeItsNamesIsBelieved) {
  const testing::TempFolder folder;
  folder.write("m.py", "from x import *\n");
  EXPECT_TRUE(cut_package(of(folder.path(), "m.train")));
}

TEST(PackageCutTest, APackageThatIsItsOwnModuleTravelsBelowItsName) {
  const testing::TempFolder folder;
  folder.write("pk/my_module/__init__.py", kModule);
  const auto cut = cut_package(of(folder / "pk/my_module", "my_module.main"));
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_THAT(paths(*cut), ElementsAre("my_module/__init__.py"));
  const auto outer = cut_package(of(folder / "pk", "my_module.main"));
  ASSERT_TRUE(outer);
  EXPECT_THAT(paths(*outer), ElementsAre("my_module/__init__.py"));
}

TEST(PackageCutTest, AModuleBesideThePackageDoesNotTravel) {
  const testing::TempFolder folder;
  folder.write("pk/x.py", kModule);
  folder.write("beside.py", kModule);
  const auto cut = cut_package(of(folder / "pk", "beside.main"));
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message(), HasSubstr("beside the package"));
}

TEST(PackageCutTest, ALinkToAFolderIsSaid) {
  const testing::TempFolder folder;
  folder.write("p/m.py", kModule);
  folder.write("elsewhere/a", "x");
  std::filesystem::create_directory_symlink(folder / "elsewhere", folder / "p/linked");
  const auto cut = cut_package(of(folder / "p", "m.main"));
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message(), HasSubstr("p/linked is a link to a folder"));
}

TEST(PackageCutTest, TheSameCutGivesTheSameZipWhichUnpacks) {
  const testing::TempFolder folder;
  folder.write("p/m.py", kModule);
  folder.write("p/run.sh", "#!/bin/sh\n");
  std::filesystem::permissions(folder / "p/run.sh", std::filesystem::perms::owner_all);
  const auto cut = cut_package(of(folder / "p", "m.main"));
  ASSERT_TRUE(cut);
  const auto first = zip_bytes(*cut);
  folder.write("p/m.py", kModule);
  const auto second = zip_bytes(*cut_package(of(folder / "p", "m.main")));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
  ASSERT_TRUE(write_zip(*cut, folder / "p.zip").ok());
  const auto entries = launch::list_archive(folder / "p.zip");
  ASSERT_TRUE(entries) << entries.error().message();
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_TRUE((*entries)[1].is_executable);
  const auto archive = cut_package(of(folder / "p.zip", "m.main"));
  ASSERT_TRUE(archive) << archive.error().message();
  EXPECT_TRUE(archive->is_archive);
  EXPECT_THAT(paths(*archive), ElementsAre("p.zip"));
}

TEST(PackageCutTest, ALimitOfAConfigMapIsSaid) {
  const testing::TempFolder folder;
  folder.write("m.py", kModule);
  std::mt19937 random(7);  // does not compress
  std::string noise(1100U << 10U, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  folder.write("noise.bin", noise);
  const auto cut = cut_package(of(folder.path(), "m.main"));
  ASSERT_TRUE(cut);
  const auto zip = zip_for_config_map(&*cut);
  ASSERT_FALSE(zip);
  EXPECT_THAT(zip.error().message(), HasSubstr("a ConfigMap holds 1024; its biggest file is"));
}

TEST(DigestCacheTest, AFileThatDidNotChangeIsNotReadAgain) {
  const testing::TempFolder folder;
  const std::string file = folder.write("a", "content");
  const std::string cache = folder / "cache/digests";
  struct stat about{};
  ::stat(file.c_str(), &about);
  std::string digest;
  {
    DigestCache first(cache);
    digest = *first.digest(file, about);
    EXPECT_EQ(first.bytes_read(), 7U);
    first.save();
  }
  // The cache was written long after the change: only then the times are to be believed.
  std::filesystem::last_write_time(
      cache, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  DigestCache second(cache);
  EXPECT_EQ(*second.digest(file, about), digest);
  EXPECT_EQ(second.bytes_read(), 0U);
  folder.write("a", "another");
  ::stat(file.c_str(), &about);
  EXPECT_NE(*second.digest(file, about), digest);
}

TEST(SharedObjectTest, AnObjectOfAnotherMachineIsRefused) {
  EXPECT_TRUE(check_shared_object("/proc/self/exe", "").ok());
  const Status status = check_shared_object("/proc/self/exe", "riscv64");
  EXPECT_THAT(status.message(), HasSubstr("the workers run on riscv64"));
  const testing::TempFolder folder;
  EXPECT_TRUE(check_shared_object(folder.write("a.so", "a text"), "").ok());
  EXPECT_FALSE(check_shared_object(folder.write("b.so",
                                                "\x7f"
                                                "ELF"),
                                   "")
                   .ok());
}

}  // namespace
}  // namespace divisi::run
