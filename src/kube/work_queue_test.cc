#include "kube/work_queue.h"

#include "kube/testing/sim_loop.h"

#include <gtest/gtest.h>

namespace divisi::kube {
namespace {

using namespace std::chrono_literals;
using testing::SimLoop;

class WorkQueueTest : public ::testing::Test {
 protected:
  std::vector<std::string> take_all() {
    std::vector<std::string> keys;
    while (auto key = queue_.take()) {
      keys.push_back(*key);
      queue_.done(*key);
    }
    return keys;
  }

  SimLoop loop_;
  int ready_ = 0;
  WorkQueue queue_{loop_, {}, [this] { ++ready_; }};
};

// kubernetes.md 1, convention 31.
TEST_F(WorkQueueTest, C31_AKeyAddedManyTimesIsTakenOnce) {
  queue_.add("a");
  queue_.add("b");
  queue_.add("a");
  EXPECT_EQ(take_all(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ready_, 1) << "told once, when there was something after nothing";
}

TEST_F(WorkQueueTest, C31_AKeyAddedWhileItIsWorkedOnComesOnceMore) {
  queue_.add("a");
  ASSERT_EQ(queue_.take(), "a");
  queue_.add("a");
  queue_.add("a");
  EXPECT_EQ(queue_.take(), std::nullopt) << "one worker a key";
  queue_.done("a");
  EXPECT_EQ(take_all(), std::vector<std::string>{"a"});
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_EQ(queue_.working(), 0u);
}

TEST_F(WorkQueueTest, AKeyAddedDuringItsRetryComesOnceMore) {
  queue_.add("a");
  ASSERT_EQ(queue_.take(), "a");
  queue_.done("a");
  queue_.add_failed("a");
  ASSERT_TRUE(loop_.run_until([&] { return queue_.size() == 1; }));
  ASSERT_EQ(queue_.take(), "a");
  queue_.add("a");  // while the retry runs
  queue_.done("a");
  EXPECT_EQ(take_all(), std::vector<std::string>{"a"});
}

TEST_F(WorkQueueTest, C33_ChangesComeBeforeFloods) {
  for (const char* key : {"1", "2", "3"}) queue_.add(key, Priority::kFlood);
  queue_.add("change");
  queue_.add("3");  // it changes as well
  EXPECT_EQ(take_all(), (std::vector<std::string>{"change", "3", "1", "2"}));
}

TEST_F(WorkQueueTest, C33_AKeyWorkedOnKeepsTheUrgencyItWasAddedWith) {
  queue_.add("a");
  ASSERT_EQ(queue_.take(), "a");
  queue_.add("b", Priority::kFlood);
  queue_.add("a", Priority::kFlood);
  queue_.add("a");
  queue_.done("a");
  EXPECT_EQ(take_all(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(WorkQueueTest, ADelayedKeyComesAtItsTimeAndTheSoonestWins) {
  queue_.add_after("a", 10s);
  queue_.add_after("a", 5s);
  queue_.add_after("a", 20s);
  queue_.add_after("b", 7s);
  loop_.run_for(4s);
  EXPECT_EQ(queue_.size(), 0u);
  loop_.run_for(1s);
  EXPECT_EQ(take_all(), std::vector<std::string>{"a"});
  loop_.run_for(2s);
  EXPECT_EQ(take_all(), std::vector<std::string>{"b"});
  EXPECT_EQ(queue_.delayed(), 0u);
}

TEST_F(WorkQueueTest, C32_AKeyThatFailsWaitsTwiceAsLongEachTimeUntilItIsForgotten) {
  std::vector<io::Duration> waits;
  for (int i = 0; i < 20; ++i) {
    const io::TimePoint start = loop_.now();
    queue_.add_failed("a");
    ASSERT_TRUE(loop_.run_until([&] { return queue_.size() > 0; }));
    waits.push_back(loop_.now() - start);
    take_all();
    loop_.run_for(1s);  // the bucket of all is full again
  }
  EXPECT_EQ(waits[0], 5ms);
  EXPECT_EQ(waits[1], 10ms);
  EXPECT_EQ(waits[10], 5120ms);
  EXPECT_EQ(waits[19], 1000s) << "the longest";
  queue_.forget("a");
  EXPECT_EQ(queue_.failures("a"), 0);
}

TEST_F(WorkQueueTest, C32_AllThatFailTogetherAreTenASecondAfterABurstOfAHundred) {
  for (int i = 0; i < 150; ++i) queue_.add_failed(std::to_string(i));
  loop_.run_for(10ms);
  EXPECT_EQ(queue_.size(), 100u);
  loop_.run_for(1s);
  EXPECT_EQ(queue_.size(), 110u);
  loop_.run_for(4s);
  EXPECT_EQ(queue_.size(), 150u);
}

}  // namespace
}  // namespace divisi::kube
