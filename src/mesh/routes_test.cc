#include "mesh/routes.h"

#include "divisi/event.h"
#include "mesh/testing/test_node.h"

#include <gtest/gtest.h>

namespace divisi::mesh {
namespace {

using testing::Door;
using testing::Inbox;

class RoutesTest : public ::testing::Test {
 protected:
  ~RoutesTest() override { door_.open(); }

  void post(Routes& routes, int value) {
    PackScratch scratch;
    routes.post_local("topic", Payload::copy_of(pack_args(scratch, value)), 0);
  }

  Door door_;
  Inbox<int> seen_;
  EventLoop loop_{"routes"};
};

TEST_F(RoutesTest, WhatIsQueuedKeepsItsNameWhenItsRouteIsGone) {
  Routes routes(1 << 20);
  loop_.on("a name that does not fit into a string itself", [&](int value) {
    seen_.add(value);
    door_.pass();
  });
  ASSERT_TRUE(
      routes.subscribe("topic", "a name that does not fit into a string itself", loop_.core()));
  post(routes, 1);
  post(routes, 2);
  ASSERT_TRUE(seen_.reaches(1));
  ASSERT_TRUE(routes.unsubscribe("topic", loop_.core().get()));
  post(routes, 3);
  door_.open();
  ASSERT_TRUE(seen_.reaches(2));
  loop_.stop();
  EXPECT_EQ(seen_.values(), (std::vector{1, 2}));
}

}  // namespace
}  // namespace divisi::mesh
