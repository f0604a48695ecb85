#include "trials/pod_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::trials {
namespace {

using ::testing::HasSubstr;

TEST(PodResultsTest, FilesComeWithTheirBytes) {
  const auto found = parse_search(std::string_view("R 5 /a b/result.pkl\n1\n\0 3S 2 /x\n{}", 34));
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->result->path, "/a b/result.pkl");
  EXPECT_EQ(found->result->bytes, std::string("1\n\0 3", 5));
  EXPECT_EQ(found->side->bytes, "{}");
  EXPECT_FALSE(parse_search("")->result);
}

TEST(PodResultsTest, WhatIsCutOrStrangeIsAnError) {
  EXPECT_THAT(parse_search("R 9 /x\nabc").error().message(), HasSubstr("3 of 9 bytes"));
  for (const std::string_view text : {"hello", "R x /y\n", "Q 1 /y\na", "R 1\na", "R 1 /y", "\n"}) {
    EXPECT_FALSE(parse_search(text)) << text;
  }
}

}  // namespace
}  // namespace divisi::trials
