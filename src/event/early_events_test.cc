#include "event/early_events.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace divisi::event {
namespace {

class EarlyEventsTest : public ::testing::Test {
 protected:
  EarlyEventsTest() { unheard_.count_in(count_); }

  bool keep(const std::string& event, int value) {
    PackScratch scratch;
    return early_.keep({event, pack_args(scratch, value), 1, 0}, [] { return false; });
  }
  static std::string reply(std::size_t number) { return "reply_" + std::to_string(number); }

  const Unheard::Counter count_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  Unheard unheard_;
  EarlyEvents early_{unheard_};
};

TEST_F(EarlyEventsTest, NamesMadeUpAsOneGoesDoNotAddUp) {
  constexpr std::size_t kNames = 100'000;
  for (std::size_t i = 0; i < kNames; ++i) {
    EXPECT_FALSE(early_.take(reply(i)).has_value());
    ASSERT_LE(early_.names(), EarlyEvents::kMostNames);
  }
  EXPECT_EQ(early_.names(), EarlyEvents::kMostNames);
  early_.note_emit();
  EXPECT_FALSE(keep(reply(kNames - EarlyEvents::kMostNames - 1), 1));
  EXPECT_TRUE(keep(reply(kNames - EarlyEvents::kMostNames), 2)) << "the oldest that is remembered";
  EXPECT_TRUE(early_.take(reply(kNames - EarlyEvents::kMostNames)).has_value());
}

TEST_F(EarlyEventsTest, ANameThatIsWaitedForAgainIsNotForgotten) {
  EXPECT_FALSE(early_.take("pong").has_value());
  for (std::size_t i = 0; i < 3 * EarlyEvents::kMostNames; ++i) {
    early_.note_emit();
    ASSERT_TRUE(keep("pong", 1)) << i;
    ASSERT_TRUE(early_.take("pong").has_value()) << i;
    EXPECT_FALSE(early_.take(reply(i)).has_value());
  }
  EXPECT_EQ(count_->load(), 0u);
}

TEST_F(EarlyEventsTest, LargeAnswersThatWereTakenMakeRoomForOthers) {
  EXPECT_FALSE(early_.take("pong").has_value());
  const std::string large(std::size_t{1} << 20, 'x');
  PackScratch scratch;
  for (int i = 0; i < 40; ++i) {  // more than is kept at a time
    early_.note_emit();
    ASSERT_TRUE(early_.keep({"pong", pack_args(scratch, large), 1, 0}, [] { return false; }));
    ASSERT_TRUE(early_.take("pong").has_value()) << i;
  }
  EXPECT_EQ(count_->load(), 0u);
}

TEST_F(EarlyEventsTest, AnswersThatComeAfterAllWaitsAreCountedWithTheirNames) {
  for (std::size_t i = 0; i < 3 * EarlyEvents::kMostNames; ++i) {
    EXPECT_FALSE(early_.take(reply(i)).has_value());
    ASSERT_TRUE(keep(reply(i), 1)) << "too late for its wait";
  }
  EXPECT_EQ(count_->load(), 2 * EarlyEvents::kMostNames);
  early_.clear();
  EXPECT_EQ(count_->load(), 3 * EarlyEvents::kMostNames);
  EXPECT_EQ(early_.names(), 0u);
}

}  // namespace
}  // namespace divisi::event
