#include "launch/entry_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divisi::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EntryNameTest, SplitsAtTheLastDot) {
  const EntryName entry = parse_entry_name("a.b.main").value();
  EXPECT_EQ(entry.module, "a.b");
  EXPECT_EQ(entry.function, "main");
  EXPECT_FALSE(entry.is_symbol);
  EXPECT_EQ(parse_entry_name("train.scope::run").value().function, "scope::run");
}

TEST(EntryNameTest, ReadsTheSymbolForm) {
  const EntryName entry = parse_entry_name("libfoo.so:run").value();
  EXPECT_EQ(entry.module, "libfoo.so");
  EXPECT_EQ(entry.function, "run");
  EXPECT_TRUE(entry.is_symbol);
  EXPECT_TRUE(parse_entry_name("build/libfoo.so.1:run").value().is_symbol);
  EXPECT_EQ(entry.text(), "libfoo.so:run");
}

TEST(EntryNameTest, RefusesWhatIsNeither) {
  EXPECT_THAT(parse_entry_name("main").error().message(), HasSubstr("'main' has no dot"));
  for (const char* bad :
       {"", ".", "a.", ".main", "a..main", "../a.main", "a/b.main", "libfoo.so:"}) {
    const auto entry = parse_entry_name(bad);
    ASSERT_FALSE(entry.has_value()) << bad;
    EXPECT_THAT(entry.error().message(), HasSubstr("write module.function or libfoo.so:symbol"));
  }
}

TEST(EntryNameTest, ThePackageNameIsTheDefaultModule) {
  EXPECT_EQ(default_entry_name("my_module").value().text(), "my_module.main");
  EXPECT_EQ(default_entry_name("my_module.zip").value().text(), "my_module.main");
  EXPECT_FALSE(default_entry_name("my module").has_value());
  EXPECT_FALSE(default_entry_name("").has_value());
}

TEST(EntryNameTest, LooksInThePackageItsParentAndTheFolderOfTheModule) {
  EXPECT_THAT(candidate_files({"my_module", "main"}, "/w/pk", "/w"),
              ElementsAre("/w/pk/my_module.so", "/w/pk/libmy_module.so", "/w/my_module.so",
                          "/w/libmy_module.so", "/w/pk/my_module/my_module.so",
                          "/w/pk/my_module/libmy_module.so"));
  EXPECT_THAT(candidate_files({"a.b", "main"}, "/w/pk", "/w"),
              ElementsAre("/w/pk/a/b.so", "/w/pk/a/libb.so", "/w/a/b.so", "/w/a/libb.so",
                          "/w/pk/a/a/b.so", "/w/pk/a/a/libb.so"));
  EXPECT_THAT(candidate_files({"libfoo.so", "run", true}, "/w/pk", "/w"),
              ElementsAre("/w/pk/libfoo.so", "/w/libfoo.so", "/w/pk/foo/libfoo.so"));
  EXPECT_THAT(candidate_files({"/abs/libfoo.so", "run", true}, "/w/pk", "/w"),
              ElementsAre("/abs/libfoo.so"));
}

}  // namespace
}  // namespace divisi::launch
