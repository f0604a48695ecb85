#include "runtime/labels.h"

#include <gtest/gtest.h>

namespace divisi::runtime {
namespace {

TEST(LabelsTest, PlainTextMatchesItselfOnly) {
  EXPECT_TRUE(glob_match("gpu", "gpu"));
  EXPECT_FALSE(glob_match("gpu", "gpus"));
  EXPECT_FALSE(glob_match("gpus", "gpu"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
}

TEST(LabelsTest, MatchingIsCaseSensitive) {
  EXPECT_FALSE(glob_match("GPU", "gpu"));
}

TEST(LabelsTest, AStarTakesAnyNumberOfCharacters) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("learn*", "learner"));
  EXPECT_TRUE(glob_match("learn*", "learn"));
  EXPECT_TRUE(glob_match("node.*", "node.12"));
  EXPECT_FALSE(glob_match("node.*", "standalone"));
  EXPECT_TRUE(glob_match("a*b*c", "a__b__b_c"));
  EXPECT_FALSE(glob_match("a*b*c", "a__c__b"));
  EXPECT_TRUE(glob_match("**x**", "x"));
}

TEST(LabelsTest, AQuestionMarkTakesExactlyOneCharacter) {
  EXPECT_TRUE(glob_match("node.?", "node.1"));
  EXPECT_FALSE(glob_match("node.?", "node.12"));
  EXPECT_FALSE(glob_match("node.?", "node."));
}

TEST(LabelsTest, ASetTakesOneOfItsCharacters) {
  EXPECT_TRUE(glob_match("node.[12]", "node.2"));
  EXPECT_FALSE(glob_match("node.[12]", "node.3"));
  EXPECT_TRUE(glob_match("node.[0-4]", "node.3"));
  EXPECT_FALSE(glob_match("node.[0-4]", "node.5"));
  EXPECT_TRUE(glob_match("[!a-c]x", "dx"));
  EXPECT_FALSE(glob_match("[!a-c]x", "bx"));
  EXPECT_TRUE(glob_match("[]]", "]"));
  EXPECT_TRUE(glob_match("[!]]", "a"));
  EXPECT_TRUE(glob_match("[a-]", "-"));
}

TEST(LabelsTest, AnOpenBracketThatIsNeverClosedStandsForItself) {
  EXPECT_TRUE(glob_match("a[b", "a[b"));
  EXPECT_FALSE(glob_match("a[b", "ab"));
  EXPECT_TRUE(glob_match("[", "["));
  EXPECT_TRUE(glob_match("[!", "[!"));
}

TEST(LabelsTest, ManyStarsAgainstALongTextEndQuickly) {
  const std::string text(200, 'a');
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", text));
}

}  // namespace
}  // namespace divisi::runtime
