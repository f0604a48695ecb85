#include "event/reclaim.h"

#include "base/testing/wait_until.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace divisi::event {
namespace {

TEST(ReclaimTest, FreesAtOnceWhenNobodyReads) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = object;
  retire(std::move(object));
  reclaim();
  EXPECT_TRUE(seen.expired());
}

TEST(ReclaimTest, WaitsForTheOutermostSectionThatWasOpen) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = object;
  {
    const ReadSection outer;
    {
      const ReadSection inner;
      retire(std::move(object));
      reclaim();
      EXPECT_FALSE(seen.expired());
    }
    EXPECT_FALSE(seen.expired());
  }
  EXPECT_TRUE(seen.expired()) << "freed by the reader that left last";
}

TEST(ReclaimTest, ALaterSectionOfAnotherThreadDoesNotHoldIt) {
  std::atomic<bool> reading = false;
  std::atomic<bool> leave = false;
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = object;
  retire(std::move(object));
  std::jthread reader([&] {
    const ReadSection section;
    reading = true;
    while (!leave) std::this_thread::yield();
  });
  divisi::testing::wait_until("the section is open", [&] { return reading.load(); });
  reclaim();
  EXPECT_TRUE(seen.expired());
  leave = true;
}

TEST(ReclaimTest, InAForkedChildTheSectionsOfOtherThreadsHaveEnded) {
  std::atomic<bool> reading = false;
  std::atomic<bool> leave = false;
  std::jthread reader([&] {
    const ReadSection section;
    reading = true;
    while (!leave) std::this_thread::yield();
  });
  while (!reading) std::this_thread::yield();
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = object;
  std::optional<ReadSection> own(std::in_place);
  const pid_t child = ::fork();
  if (child == 0) {
    retire(std::move(object));
    reclaim();
    const bool held = !seen.expired();
    own.reset();
    ::_exit(held && seen.expired() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "held by the section of the forking thread, and by no other";
  own.reset();
  retire(std::move(object));
  reclaim();
  EXPECT_FALSE(seen.expired()) << "in the parent the reader reads on";
  leave = true;
}

TEST(ReclaimTest, ReadersNeverSeeAFreedObject) {
  struct Checked {
    explicit Checked(int number) : value(number), copy(number) {}
    ~Checked() { value = -1; }
    int value;
    int copy;
  };
  auto owned = std::make_shared<Checked>(0);
  std::atomic<Checked*> shared = owned.get();
  std::atomic<bool> done = false;
  std::atomic<int> bad = 0;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        const ReadSection reading;
        const Checked* seen = shared.load();
        if (seen->value != seen->copy) bad.fetch_add(1);
      }
    });
  }
  for (int i = 1; i < 20'000; ++i) {
    auto next = std::make_shared<Checked>(i);
    shared.store(next.get());
    retire(std::exchange(owned, std::move(next)));
    reclaim();
  }
  done = true;
  readers.clear();
  EXPECT_EQ(bad, 0);
}

}  // namespace
}  // namespace divisi::event
