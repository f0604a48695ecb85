#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace divisi {
namespace {

const std::vector<std::string> kNames = {"batch_size", "learning_rate", "nstep", "CartPole-v1"};

TEST(NearestNameTest, A_slip_is_recognised) {
  EXPECT_EQ(nearest_name("bach_size", kNames), "batch_size");
  EXPECT_EQ(nearest_name("n_step", kNames), "nstep");
  EXPECT_EQ(nearest_name("cartpole-v0", kNames), "CartPole-v1");
}

TEST(NearestNameTest, Something_else_is_not) {
  EXPECT_EQ(nearest_name("zebra_crossing", kNames), "");
  EXPECT_EQ(did_you_mean("zebra_crossing", kNames), "");
}

TEST(NearestNameTest, The_end_of_an_error_line) {
  EXPECT_EQ(did_you_mean("lerning_rate", kNames), ", did you mean 'learning_rate'?");
}

}  // namespace
}  // namespace divisi
