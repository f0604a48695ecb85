#include "dist_rl/parameter_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace divisi::dist_rl {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::uint16_t free_port() {
  const io::Descriptor probe(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(any);
  ::bind(probe.get(), reinterpret_cast<sockaddr*>(&any), size);
  ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&any), &size);
  return ntohs(any.sin_port);
}

TEST(ParameterGroupTest, EveryRankGetsTheMean) {
  const std::uint16_t port = free_port();
  std::vector<std::vector<float>> parameters(3, std::vector<float>(200'000));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      auto& own = parameters[static_cast<std::size_t>(rank)];
      ParameterGroup group({.rank = rank, .size = 3, .port = port});
      Status status = group.join();
      ASSERT_TRUE(status.ok()) << status.message();
      for (int round = 0; round < 3; ++round) {
        std::ranges::fill(own, static_cast<float>(rank + round));
        status = group.average(own);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_THAT(own, Each(static_cast<float>(1 + round)));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(ParameterGroupTest, ARankThatIsGoneFailsTheOthers) {
  const std::uint16_t port = free_port();
  ParameterGroup first({.rank = 0, .size = 2, .port = port});
  ParameterGroup second({.rank = 1, .size = 2, .port = port});
  std::thread other([&] { EXPECT_TRUE(second.join().ok()); });
  ASSERT_TRUE(first.join().ok());
  other.join();
  second.leave();
  std::vector<float> values(8);
  EXPECT_THAT(first.average(values).message(), HasSubstr("another rank is gone"));
  EXPECT_THAT(first.average(values).message(), HasSubstr("not connected"));
}

TEST(ParameterGroupTest, RanksThatDoNotComeAreNamed) {
  const std::uint16_t port = free_port();
  ParameterGroup first(
      {.rank = 0, .size = 3, .port = port, .patience = std::chrono::milliseconds(50)});
  EXPECT_THAT(first.join().message(), HasSubstr("rank 0 of 3: 2 other ranks did not come"));
  ParameterGroup second(
      {.rank = 1, .size = 3, .port = port, .patience = std::chrono::milliseconds(50)});
  EXPECT_THAT(second.join().message(), HasSubstr("rank 0 cannot be reached"));
}

TEST(ParameterGroupTest, StopEndsAWait) {
  ParameterGroup group({.rank = 0, .size = 2, .port = free_port()});
  std::thread stopper([&] { group.stop(); });
  EXPECT_THAT(group.join().message(), HasSubstr("stopped"));
  stopper.join();
}

TEST(ParameterGroupTest, ReadsTheEnvironment) {
  const auto set = [](const char* rank, const char* size) {
    ::setenv("RANK", rank, 1);
    ::setenv("WORLD_SIZE", size, 1);
  };
  set("1", "4");
  const auto group = ParameterGroup::from_environment();
  ASSERT_TRUE(group) << group.error().message();
  EXPECT_EQ((*group)->rank(), 1);
  EXPECT_EQ((*group)->size(), 4);
  set("4", "4");
  EXPECT_THAT(ParameterGroup::from_environment().error().message(), HasSubstr("RANK=4"));
  set("x", "4");
  EXPECT_THAT(ParameterGroup::from_environment().error().message(), HasSubstr("RANK is 'x'"));
  set("0", "1");
  EXPECT_EQ(*ParameterGroup::from_environment(), nullptr);
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
}

}  // namespace
}  // namespace divisi::dist_rl
