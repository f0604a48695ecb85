#include "run/gitignore.h"

#include <gtest/gtest.h>

namespace divisi::run {
namespace {

TEST(GitignoreTest, ANameWithoutASlashIsIgnoredInEveryFolder) {
  Gitignore rules;
  rules.add("", "*.o\nbuild/\n# a comment\n\n");
  EXPECT_TRUE(rules.ignores("a.o", false));
  EXPECT_TRUE(rules.ignores("x/y/a.o", false));
  EXPECT_TRUE(rules.ignores("x/build", true));
  EXPECT_FALSE(rules.ignores("build", false)) << "only folders of that name";
  EXPECT_FALSE(rules.ignores("a.c", false));
}

TEST(GitignoreTest, ASlashBindsAPatternToItsFolder) {
  Gitignore rules;
  rules.add("", "/data\ndocs/*.html\n");
  EXPECT_TRUE(rules.ignores("data", true));
  EXPECT_FALSE(rules.ignores("x/data", true));
  EXPECT_TRUE(rules.ignores("docs/a.html", false));
  EXPECT_FALSE(rules.ignores("docs/x/a.html", false)) << "a star does not match a slash";
}

TEST(GitignoreTest, TheLastRuleThatFitsDecides) {
  Gitignore rules;
  rules.add("", "*.bin\n!keep.bin\n");
  EXPECT_TRUE(rules.ignores("a.bin", false));
  EXPECT_FALSE(rules.ignores("sub/keep.bin", false));
}

TEST(GitignoreTest, TheFileOfAFolderSpeaksOfWhatIsBelowIt) {
  Gitignore rules;
  rules.add("", "*.log\n");
  rules.add("sub", "!a.log\n/only\n");
  EXPECT_TRUE(rules.ignores("a.log", false));
  EXPECT_FALSE(rules.ignores("sub/a.log", false));
  EXPECT_TRUE(rules.ignores("sub/only", false));
  EXPECT_FALSE(rules.ignores("only", false));
}

TEST(GitignoreTest, TwoStarsMatchAnyNumberOfFolders) {
  EXPECT_TRUE(path_match("**/a", "a"));
  EXPECT_TRUE(path_match("**/a", "x/y/a"));
  EXPECT_TRUE(path_match("a/**", "a/b/c"));
  EXPECT_FALSE(path_match("a/**", "a"));
  EXPECT_TRUE(path_match("a/**/b", "a/b"));
  EXPECT_TRUE(path_match("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(path_match("a/**/b", "a/x/y/c"));
}

TEST(GitignoreTest, ABackslashTakesTheMeaningOfTheNextCharacter) {
  Gitignore rules;
  rules.add("", "\\#x\n\\!y\na\\*b\n");
  EXPECT_TRUE(rules.ignores("#x", false));
  EXPECT_TRUE(rules.ignores("!y", false));
  EXPECT_TRUE(rules.ignores("a*b", false));
  EXPECT_FALSE(rules.ignores("axb", false));
}

}  // namespace
}  // namespace divisi::run
