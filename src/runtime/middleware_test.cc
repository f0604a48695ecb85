#include "divisi/middleware.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace divisi {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Trace = std::vector<std::string>;

struct OwnContext : Context {
  int value = 0;
  DIVISI_CONTEXT(OwnContext, value)
};

void plain_function(Context& ctx) {
  ctx.total_step += 1;
}
void own_function(OwnContext& ctx) {
  ctx.value += 1;
}

struct CallableObject {
  int calls = 0;
  void operator()(OwnContext& ctx) { ctx.value = ++calls; }
};

void call(const Middleware& fn, Context& ctx) {
  MiddlewareCall one(fn, ctx);
  if (one.forward()) one.backward();
}

TEST(MiddlewareTest, AnyCallableThatTakesAContextIsOne) {
  OwnContext ctx;
  call(plain_function, ctx);
  EXPECT_EQ(ctx.total_step, 1);
  call(own_function, ctx);
  EXPECT_EQ(ctx.value, 1);
  call([](const OwnContext& own) { EXPECT_EQ(own.value, 1); }, ctx);
  call([owned = std::make_unique<int>(3)](OwnContext& own) { own.value = *owned; }, ctx);
  EXPECT_EQ(ctx.value, 3);
  call([](auto& any) { any.total_step = 9; }, ctx);
  EXPECT_EQ(ctx.total_step, 9);
}

TEST(MiddlewareTest, CopiesShareTheStateOfTheCallable) {
  OwnContext ctx;
  const Middleware fn = CallableObject{};
  const Middleware copy = fn;  // NOLINT(performance-unnecessary-copy-initialization)
  call(fn, ctx);
  call(copy, ctx);
  EXPECT_EQ(ctx.value, 2);

  CallableObject object;
  call(std::ref(object), ctx);
  EXPECT_EQ(object.calls, 1);
}

TEST(MiddlewareTest, AContextOfAnotherClassIsRefusedWithBothClasses) {
  Context ctx;
  EXPECT_THAT(
      [&] { call(own_function, ctx); },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("OwnContext"), HasSubstr("divisi::Context"))));
}

TEST(MiddlewareTest, AnEmptyFunctionIsRefused) {
  const std::function<void(Context&)> empty;
  EXPECT_THROW(Middleware{empty}, UsageError);
}

TEST(MiddlewareTest, NamesComeFromTheUserTheTypeOrTheFunction) {
  EXPECT_EQ(named("learn", plain_function).name(), "learn");
  EXPECT_THAT(Middleware(CallableObject{}).name(), HasSubstr("CallableObject"));
  EXPECT_NE(Middleware(plain_function).name(), named("", own_function).name());
  const auto one = [](Context&) {};
  const auto two = [](Context&) {};
  EXPECT_NE(Middleware(one).name(), Middleware(two).name());
  void (*const other)(Context&) = [](Context&) {};
  EXPECT_NE(Middleware(plain_function).name(), Middleware(other).name());
  EXPECT_EQ(Middleware(plain_function).renamed("new").name(), "new");
}

TEST(MiddlewareTest, OnlyAVoidMiddlewareIsVoid) {
  EXPECT_TRUE(Middleware(VoidMiddleware{}).is_void());
  EXPECT_FALSE(Middleware(plain_function).is_void());
}

TEST(MiddlewareTest, ACallRunsTheTwoPartsSeparately) {
  Trace trace;
  Context ctx;
  MiddlewareCall one(
      [&](Context&) {
        trace.push_back("+");
        suspend();
        trace.push_back("-");
      },
      ctx);
  EXPECT_TRUE(one.forward());
  EXPECT_EQ(trace, (Trace{"+"}));
  one.backward();
  EXPECT_EQ(trace, (Trace{"+", "-"}));
  EXPECT_FALSE(one.suspended());
  one.backward();
  EXPECT_EQ(trace.size(), 2u);
}

TEST(MiddlewareTest, WhatFollowsASecondSuspensionNeverRunsAndOneWarningIsLogged) {
  Trace trace;
  Context ctx;
  const Middleware twice = named("twice", [&](Context&) {
    suspend();
    trace.push_back("resumed once");
    suspend();
    trace.push_back("never");
  });
  ::testing::internal::CaptureStderr();
  call(twice, ctx);
  call(twice, ctx);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(trace, (Trace{"resumed once", "resumed once"}));
  const std::size_t first = log.find("middleware twice suspended twice");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("suspended twice", first + 40), std::string::npos) << log;
}

TEST(MiddlewareTest, AMiddlewareThatCallsAnotherSuspendsWithIt) {
  Trace trace;
  Context ctx;
  const Middleware inner = [&](Context&) {
    trace.push_back("inner+");
    suspend();
    trace.push_back("inner-");
  };
  MiddlewareCall outer(
      [&](Context& same) {
        inner(same);
        trace.push_back("outer-");
      },
      ctx);
  EXPECT_TRUE(outer.forward());
  EXPECT_EQ(trace, (Trace{"inner+"}));
  outer.backward();
  EXPECT_EQ(trace, (Trace{"inner+", "inner-", "outer-"}));
}

TEST(MiddlewareTest, SuspendOutsideAMiddlewareIsAUsageError) {
  EXPECT_THROW(suspend(), UsageError);
}

}  // namespace
}  // namespace divisi
