#include "launch/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace divisi::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> hosts(std::string_view text) {
  auto result = expand_host_list(text);
  EXPECT_TRUE(result.has_value()) << text << ": " << (result ? "" : result.error().message());
  return result.value_or(std::vector<std::string>());
}

std::string host_error(std::string_view text) {
  const auto result = expand_host_list(text);
  EXPECT_FALSE(result.has_value()) << text;
  return result ? "" : result.error().message();
}

TEST(HostListTest, ExpandsRangesAndItems) {
  EXPECT_THAT(hosts("n1"), ElementsAre("n1"));
  EXPECT_THAT(hosts("SH-IDC1-10-5-38-[190,215]"),
              ElementsAre("SH-IDC1-10-5-38-190", "SH-IDC1-10-5-38-215"));
  EXPECT_THAT(hosts("n[1-3,7]"), ElementsAre("n1", "n2", "n3", "n7"));
  EXPECT_THAT(hosts(" a1 , b2 "), ElementsAre("a1", "b2"));
}

TEST(HostListTest, D28KeepsPaddingAndReadsSeveralGroupsAndPlainCommas) {
  EXPECT_THAT(hosts("n[08-10]"), ElementsAre("n08", "n09", "n10"));
  EXPECT_THAT(hosts("n[8-10]"), ElementsAre("n8", "n9", "n10"));
  EXPECT_THAT(hosts("n[008,099-101]"), ElementsAre("n008", "n099", "n100", "n101"));
  EXPECT_THAT(hosts("a[1-2],b[3-4]"), ElementsAre("a1", "a2", "b3", "b4"));
  EXPECT_THAT(hosts("a1,b2"), ElementsAre("a1", "b2"));
  EXPECT_THAT(hosts("login,n[1,3]-ib,x"), ElementsAre("login", "n1-ib", "n3-ib", "x"));
}

TEST(HostListTest, MultipliesSeveralBracketGroupsOfOneName) {
  EXPECT_THAT(hosts("r[1-2]n[08-09].lab"),
              ElementsAre("r1n08.lab", "r1n09.lab", "r2n08.lab", "r2n09.lab"));
}

TEST(HostListTest, RefusesWhatIsNotAHostList) {
  EXPECT_THAT(host_error(""), HasSubstr("empty"));
  EXPECT_THAT(host_error("a,,b"), HasSubstr("empty"));
  EXPECT_THAT(host_error("a,"), HasSubstr("empty"));
  EXPECT_THAT(host_error("n[1-2"), HasSubstr("'[' without ']'"));
  EXPECT_THAT(host_error("n1]"), HasSubstr("']' without '['"));
  EXPECT_THAT(host_error("n[]"), HasSubstr("not a number or a range"));
  EXPECT_THAT(host_error("n[1-]"), HasSubstr("not a number or a range"));
  EXPECT_THAT(host_error("n[a-b]"), HasSubstr("not a number or a range"));
  EXPECT_THAT(host_error("n[1-2-3]"), HasSubstr("not a number or a range"));
  EXPECT_THAT(host_error("n[[1]]"), HasSubstr("not a number or a range"));
  EXPECT_THAT(host_error("n[9-1]"), HasSubstr("backwards"));
  EXPECT_THAT(host_error("a b"), HasSubstr("not a host name"));
}

TEST(HostListTest, BoundsTheNumberOfHosts) {
  EXPECT_EQ(hosts("n[1-65536]").size(), kMaxHosts);
  EXPECT_THAT(host_error("n[0-65536]"), HasSubstr("more than 65536"));
  EXPECT_THAT(host_error("n[1-999999999]"), HasSubstr("more than 65536"));
  EXPECT_THAT(host_error("n[0-999999999999999999]"), HasSubstr("more than 65536"));
  EXPECT_THAT(host_error("n[1-99999999999999999999999]"), HasSubstr("not a number"));
  EXPECT_THAT(host_error("n[1-60000],m[1-60000]"), HasSubstr("more than 65536"));
  EXPECT_THAT(host_error("n[1-1000]m[1-1000]"), HasSubstr("more than 65536"));
  EXPECT_THAT(host_error("n[1-40000,1-40000]"), HasSubstr("more than 65536"));
  EXPECT_THAT(host_error(std::string(2 << 20, 'a')), HasSubstr("longer than"));
}

TEST(TaskCountsTest, ExpandsRepeats) {
  EXPECT_THAT(expand_task_counts("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(expand_task_counts("4").value(), ElementsAre(4));
}

TEST(TaskCountsTest, RefusesWhatIsNotAListOfCounts) {
  for (const char* text : {"", "x", "2(x", "2(x)", "2(x3", "2(y3)", "-1", "2(x0)", "2(x99999999)",
                           "99999999", "1(x60000),1(x60000)"}) {
    EXPECT_FALSE(expand_task_counts(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace divisi::launch
