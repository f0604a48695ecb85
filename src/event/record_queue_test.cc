#include "event/record_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace divisi::event {
namespace {

class NoEvents final : public Batch {
 public:
  explicit NoEvents(int& destroyed) : destroyed_(destroyed) {}
  ~NoEvents() override { ++destroyed_; }
  void deliver(Dispatcher&) noexcept override {}

 private:
  int& destroyed_;
};

template <class... A>
void push(RecordQueue& queue, EventEntry& entry, A&&... args) {
  divisi::detail::with_emission(
      [&](divisi::detail::Emission& emission) {
        queue.push(entry, *emission.ops, emission.store(), std::move(emission.kwargs));
      },
      std::forward<A>(args)...);
}

template <class T>
T first_argument(RecordQueue& queue) {
  divisi::detail::ArgRef ref[divisi::detail::kMaxArguments];
  Record& record = queue.front();
  record.ops->refer(record.stored(), ref, false);
  return *static_cast<T*>(ref[0].object);
}

TEST(RecordQueueTest, KeepsRecordsOfDifferentSizesInOrder) {
  RecordQueue queue;
  EventEntry entry("e", 1);
  int destroyed = 0;
  for (int i = 0; i < 5'000; ++i) {
    if (i % 3 == 0) push(queue, entry, i);
    if (i % 3 == 1) push(queue, entry, std::to_string(i), std::array<char, 300>());
    if (i % 3 == 2) queue.push(std::make_unique<NoEvents>(destroyed));
  }
  EXPECT_EQ(queue.size(), 5'000u);
  for (int i = 0; i < 5'000; ++i) {
    ASSERT_FALSE(queue.empty());
    switch (i % 3) {
      case 0: ASSERT_EQ(first_argument<int>(queue), i); break;
      case 1: ASSERT_EQ(first_argument<std::string>(queue), std::to_string(i)); break;
      default: ASSERT_NE(queue.front().batch, nullptr);
    }
    queue.pop();
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(destroyed, 5'000 / 3);
}

TEST(RecordQueueTest, DestroysWhatIsLeftInIt) {
  const auto alive = std::make_shared<int>(0);
  int destroyed = 0;
  EventEntry entry("e", 1);
  {
    RecordQueue queue;
    for (int i = 0; i < 3'000; ++i) push(queue, entry, alive, kw("x", 1));
    queue.push(std::make_unique<NoEvents>(destroyed));
    EXPECT_EQ(alive.use_count(), 3'001);
  }
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_EQ(destroyed, 1);
}

TEST(RecordQueueTest, SwapsRecordsAndTakesOverEmptiedMemory) {
  RecordQueue incoming;
  RecordQueue running;
  EventEntry entry("e", 1);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 2'000; ++i) push(incoming, entry, i);
    incoming.swap_records(running);
    EXPECT_TRUE(incoming.empty());
    for (int i = 0; i < 2'000; ++i) {
      ASSERT_EQ(first_argument<int>(running), i);
      running.pop();
    }
    incoming.take_spare(running);
  }
}

}  // namespace
}  // namespace divisi::event
