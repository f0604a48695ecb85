#include "divisi/context.h"

#include "divisi/payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

namespace divisi {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct PlainContext : Context {
  int keep_me = 0;
  int not_me = 0;
  PlainContext() { keep("keep_me"); }
  DIVISI_CONTEXT(PlainContext, keep_me, not_me)
};

struct MacroContext : Context {
  int first = 1;
  std::vector<int> second;
  std::string third = "x";
  DIVISI_KEEP(first, second)
  DIVISI_CONTEXT(MacroContext, first, second, third)
};

struct DerivedContext : OnlineRLContext {
  double loss = 0;
  DIVISI_KEEP(loss)
  DIVISI_CONTEXT(DerivedContext, loss)
};

struct ForgottenContext : PlainContext {
  int forgotten = 0;
};

struct UniqueContext : Context {
  std::unique_ptr<int> only;
  DIVISI_KEEP(only)
  DIVISI_CONTEXT(UniqueContext, only)
};

template <class T>
T round_trip(const T& ctx) {
  PackScratch scratch;
  const Payload payload = Payload::copy_of(pack_args(scratch, ctx));
  return std::get<0>(unpack_args<T>(payload.view()));
}

template <class T>
T& as(const std::shared_ptr<Context>& ctx) {
  return dynamic_cast<T&>(*ctx);
}

TEST(ContextTest, A018AKeptFieldSurvivesARenewalAndTheObjectItsCodec) {
  PlainContext ctx;
  ++ctx.keep_me;
  ++ctx.not_me;
  const auto renewed = ctx.renew();
  EXPECT_EQ(as<PlainContext>(renewed).keep_me, 1);
  EXPECT_EQ(as<PlainContext>(renewed).not_me, 0);
  EXPECT_EQ(renewed->total_step, 1);

  ctx.keep("not_me");
  const PlainContext copy = round_trip(ctx);
  EXPECT_EQ(copy.keep_me, 1);
  EXPECT_EQ(copy.not_me, 1);
  EXPECT_EQ(copy.kept(), (std::set<std::string>{"keep_me", "not_me"}));
}

TEST(ContextTest, A019AnOnlineContextKeepsItsCountersAndForgetsItsEvaluation) {
  OnlineRLContext ctx;
  ctx.env_step = 1;
  ctx.eval_value = 1;
  const auto renewed = ctx.renew();
  EXPECT_EQ(as<OnlineRLContext>(renewed).env_step, 1);
  EXPECT_EQ(as<OnlineRLContext>(renewed).eval_value, -std::numeric_limits<double>::infinity());
}

TEST(ContextTest, A020AnOfflineContextKeepsItsCountersAndForgetsItsEvaluation) {
  OfflineRLContext ctx;
  ctx.train_iter = 1;
  ctx.eval_value = 1;
  const auto renewed = ctx.renew();
  EXPECT_EQ(as<OfflineRLContext>(renewed).train_iter, 1);
  EXPECT_EQ(as<OfflineRLContext>(renewed).eval_value, -std::numeric_limits<double>::infinity());
}

TEST(ContextTest, TheReinforcementLearningContextsHaveTheSpecifiedDefaultsAndKeptFields) {
  const OnlineRLContext online;
  EXPECT_EQ(online.last_eval_iter, -1);
  EXPECT_TRUE(std::isinf(online.last_eval_value));
  EXPECT_TRUE(online.train_data.empty());
  EXPECT_EQ(online.wandb_url, "");
  EXPECT_EQ(online.kept(),
            (std::set<std::string>{"env_step", "env_episode", "train_iter", "last_eval_iter",
                                   "last_eval_value", "wandb_url"}));
  const OfflineRLContext offline;
  EXPECT_EQ(offline.kept(),
            (std::set<std::string>{"trained_env_step", "train_iter", "last_eval_iter",
                                   "last_eval_value", "wandb_url"}));
}

TEST(ContextTest, DivisiKeepNamesSeveralFieldsForEveryObject) {
  MacroContext ctx;
  ctx.first = 5;
  ctx.second = {1, 2};
  ctx.third = "lost";
  const auto once = ctx.renew();
  const auto twice = once->renew();
  EXPECT_EQ(as<MacroContext>(twice).first, 5);
  EXPECT_EQ(as<MacroContext>(twice).second, (std::vector{1, 2}));
  EXPECT_EQ(as<MacroContext>(twice).third, "x");
  EXPECT_EQ(twice->total_step, 2);
}

TEST(ContextTest, WhatIsKeptAtRunTimeSurvivesOneRenewalOnly) {
  PlainContext ctx;
  ctx.not_me = 7;
  ctx.keep("not_me");
  const auto once = ctx.renew();
  EXPECT_EQ(as<PlainContext>(once).not_me, 7);
  EXPECT_EQ(as<PlainContext>(once->renew()).not_me, 0);
}

TEST(ContextTest, KeepingANameThatDoesNotExistIsHarmless) {
  Context ctx;
  ctx.keep("nothing");
  EXPECT_EQ(ctx.renew()->total_step, 1);
  EXPECT_FALSE(ctx.has_attr("nothing"));
}

TEST(ContextTest, ADerivedContextHasTheFieldsOfItsBase) {
  DerivedContext ctx;
  ctx.env_step = 3;
  ctx.loss = 0.5;
  ctx.eval_value = 2;
  const auto renewed = ctx.renew();
  EXPECT_EQ(as<DerivedContext>(renewed).env_step, 3);
  EXPECT_EQ(as<DerivedContext>(renewed).loss, 0.5);
  EXPECT_TRUE(std::isinf(as<DerivedContext>(renewed).eval_value));
  EXPECT_EQ(round_trip(ctx).env_step, 3);
  EXPECT_EQ(round_trip(ctx).loss, 0.5);
}

TEST(ContextTest, AClassWithoutItsMacroIsRefusedByName) {
  ForgottenContext ctx;
  EXPECT_THAT([&] { ctx.renew(); }, ThrowsMessage<UsageError>(HasSubstr("ForgottenContext")));
}

TEST(ContextTest, AKeptFieldThatCannotBeCopiedIsRefusedByName) {
  UniqueContext ctx;
  EXPECT_THAT([&] { ctx.renew(); }, ThrowsMessage<UsageError>(HasSubstr("field only")));
}

TEST(ContextTest, AFieldThatCannotTravelIsRefusedByName) {
  const UniqueContext ctx;
  Packer packer;
  EXPECT_THAT([&] { ctx.pack(packer); }, ThrowsMessage<UsageError>(HasSubstr("field only")));
}

TEST(ContextTest, HasAttrKnowsFieldsAttributesAndTotalStep) {
  PlainContext ctx;
  EXPECT_TRUE(ctx.has_attr("keep_me"));
  EXPECT_TRUE(ctx.has_attr("total_step"));
  EXPECT_FALSE(ctx.has_attr("added"));
  ctx.set("added", 5);
  EXPECT_TRUE(ctx.has_attr("added"));
  ctx.remove("added");
  EXPECT_FALSE(ctx.has_attr("added"));
}

TEST(ContextTest, AttributesAddedAtRunTimeAreNotKeptUnlessAskedFor) {
  Context ctx;
  ctx.set("lost", 1);
  ctx.set("kept", std::string("here"));
  ctx.keep("kept");
  const auto renewed = ctx.renew();
  EXPECT_FALSE(renewed->has_attr("lost"));
  EXPECT_EQ(renewed->get<std::string>("kept"), "here");
}

TEST(ContextTest, FieldsAreReadAndWrittenByName) {
  PlainContext ctx;
  ctx.set("keep_me", 4);
  EXPECT_EQ(ctx.keep_me, 4);
  ctx.get<int>("keep_me") = 6;
  EXPECT_EQ(ctx.keep_me, 6);
  EXPECT_THAT([&] { ctx.get<double>("keep_me"); },
              ThrowsMessage<UsageError>(
                  ::testing::AllOf(HasSubstr("keep_me"), HasSubstr("int"), HasSubstr("double"))));
  EXPECT_THROW(ctx.set("keep_me", "text"), UsageError);
  EXPECT_THROW(ctx.get<int>("absent"), UsageError);
}

TEST(ContextTest, AnAttributeOfAnotherTypeIsRefusedWithBothTypes) {
  Context ctx;
  ctx.set("number", 1);
  EXPECT_THAT([&] { ctx.get<std::string>("number"); },
              ThrowsMessage<UsageError>(::testing::AllOf(HasSubstr("string"), HasSubstr("int"))));
}

TEST(ContextTest, DataFieldsTakeAnyTypeAndTravelIfTheirTypeDoes) {
  OnlineRLContext ctx;
  ctx.train_data = std::vector<double>{1, 2, 3};
  ctx.obs = "text";
  ctx.set("extra", 9);
  OnlineRLContext copy = round_trip(ctx);
  EXPECT_EQ(copy.train_data.get<std::vector<double>>(), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(copy.obs.get<std::string>(), "text");
  EXPECT_EQ(copy.get<int>("extra"), 9);
  EXPECT_TRUE(copy.action.empty());

  struct Local {};
  ctx.action = Local{};
  EXPECT_THROW(round_trip(ctx), UsageError);
}

TEST(ContextTest, CopiesOfAnAttributeShareTheValueAsNamesDoInPython) {
  Attribute one = std::vector<int>{1};
  Attribute other = one;
  other.get<std::vector<int>>().push_back(2);
  EXPECT_EQ(one.get<std::vector<int>>().size(), 2u);
}

TEST(ContextTest, ALargeBufferInAContextIsNotCopiedIntoTheBody) {
  OnlineRLContext ctx;
  const Buffer weights(64 * 1024);
  ctx.train_output = weights;
  PackScratch scratch;
  const PayloadView& view = pack_args(scratch, ctx);
  ASSERT_EQ(view.buffers.size(), 1u);
  EXPECT_EQ(view.buffers[0].data(), weights.data());
  EXPECT_LT(view.body.size(), 4096u);
}

TEST(ContextTest, BytesThatAreNoContextAreAnErrorAndNotACrash) {
  PackScratch scratch;
  const Payload payload = Payload::copy_of(pack_args(scratch, 5));
  EXPECT_THROW(unpack_args<PlainContext>(payload.view()), PayloadError);
  const std::map<std::string, std::string> wrong{{"keep_me", "text"}};
  const Payload typed = Payload::copy_of(pack_args(scratch, wrong));
  EXPECT_THAT([&] { unpack_args<PlainContext>(typed.view()); },
              ThrowsMessage<PayloadError>(HasSubstr("keep_me")));
}

}  // namespace
}  // namespace divisi
