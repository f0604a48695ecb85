#include "event/event_table.h"

#include "event/reclaim.h"

#include <gtest/gtest.h>

#include <functional>

namespace divisi::event {
namespace {

std::shared_ptr<Listener> nothing() {
  return divisi::detail::make_listener([] {});
}

EventEntry* find(const EventTable& table, const std::string& name) {
  const ReadSection reading;
  return table.find(name, EventTable::hash(name));
}

TEST(EventTableTest, FindsEveryNameWhileItGrows) {
  EventTable table;
  for (int i = 0; i < 1'000; ++i) {
    table.add("name" + std::to_string(i), nothing());
    for (const int seen : {0, i / 2, i}) {
      const std::string name = "name" + std::to_string(seen);
      ASSERT_NE(find(table, name), nullptr) << name;
      ASSERT_EQ(find(table, name)->name, name);
    }
  }
  EXPECT_EQ(find(table, "unknown"), nullptr);
}

TEST(EventTableTest, ForgetsUnusedNamesOnlyWhileTheLoopIsPaused) {
  EventTable table;
  const auto paused = [](const std::function<void()>& forget) { forget(); };
  const auto busy = [](const std::function<void()>&) {};
  for (int i = 0; i < 100; ++i) table.add("name" + std::to_string(i), nothing());
  EventEntry* kept = find(table, "name7");
  table.remove("name*", [&](const Listener&) { return true; }, false);
  table.add("name7", nothing());
  table.forget_unused(busy);
  EXPECT_NE(find(table, "name1"), nullptr);
  table.forget_unused(paused);
  EXPECT_EQ(find(table, "name1"), nullptr);
  EXPECT_EQ(find(table, "name7"), kept) << "entries in use stay where they are";
}

TEST(EventTableTest, HeldListenersFollowTheEntryAndKeepTheListAlive) {
  EventTable table;
  const auto alive = std::make_shared<int>(0);
  table.add("e", divisi::detail::make_listener([alive] {}));
  EventEntry& entry = *find(table, "e");
  HeldListeners held;
  ASSERT_EQ(held.hold(entry)->items.size(), 1u);
  table.clear();
  EXPECT_EQ(alive.use_count(), 2) << "held";
  EXPECT_EQ(held.hold(entry), nullptr);
  EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
}  // namespace divisi::event
