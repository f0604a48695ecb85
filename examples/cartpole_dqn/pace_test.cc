// No configuration that is accepted stands still: every corner is walked with the real limiter and
// a model of who waits for whom.
#include "rl/pace.h"

#include "divisi/error.h"
#include "options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace cartpole {
namespace {

namespace rl = divisi::rl;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A replay, a learner and collectors, each of which goes on until it has to wait. Collectors bring
// no more rows than they must.
class Job {
 public:
  Job(const rl::DqnConfig& config, int collectors)
      : pace_(rl::pace_of(config)),
        limiter_(pace_.limit),
        collectors_(static_cast<std::size_t>(collectors)) {
    limiter_.widen(pace_.rows_of_answer);
  }

  // True once the learner has sent so many weights; false if everybody waits before that.
  bool sends(int weights, std::size_t first_actor) {
    const std::size_t actors = collectors_.size() + 2;
    while (sent_ < weights) {
      bool any = false;
      for (std::size_t i = 0; i < actors; ++i) {
        const std::size_t actor = (first_actor + i) % actors;
        any = (actor < collectors_.size()    ? collect(collectors_[actor])
               : actor == collectors_.size() ? answer()
                                             : train()) ||
              any;
      }
      if (!any) return false;
    }
    return true;
  }

 private:
  struct Collector {
    int steps = 0;
    int version = 0;          // of its weights; 0: its own
    std::int64_t served = 0;  // collects with them
    int unanswered = 0;       // inserts; two at most
  };

  bool collect(Collector& collector) {
    if (collector.version != sent_) {
      collector.version = sent_;
      collector.served = 0;
    }
    // As ModelReceiver: only the first iteration goes on without weights.
    const bool has_weights = collector.version > 0;
    const bool may_use = pace_.collects == 0 || collector.served < pace_.collects;
    if (collector.steps > 0 && !(has_weights && may_use)) return false;
    if (collector.unanswered == 2) return false;
    ++collector.steps;
    if (has_weights) ++collector.served;
    ++collector.unanswered;
    limiter_.inserted(pace_.rows_of_collect);
    inserts_.push_back(&collector);
    return true;
  }

  bool answer() {
    bool any = false;
    while (!inserts_.empty() && limiter_.may_insert()) {
      --inserts_.front()->unanswered;
      inserts_.pop_front();
      any = true;
    }
    while (requested_ > 0 && limiter_.may_sample(pace_.rows_of_answer)) {
      limiter_.sampled(pace_.rows_of_answer);
      --requested_;
      ++ready_;
      any = true;
    }
    return any;
  }

  // Sends its weights at the start, after its first iteration, and so on.
  bool train() {
    const bool starts = sent_ == 0;
    if (starts) ++sent_;
    const int asked = std::exchange(requested_, 2 - ready_);
    if (ready_ == 0) return starts || requested_ != asked;
    --ready_;
    if (iteration_++ % pace_.answers == 0) ++sent_;
    return true;
  }

  const rl::Pace pace_;
  rl::RateLimiter limiter_;
  std::vector<Collector> collectors_;
  std::deque<Collector*> inserts_;
  int requested_ = 0;
  int ready_ = 0;
  std::int64_t iteration_ = 0;
  int sent_ = 0;
};

std::string refusal(const rl::DqnConfig& config, int collectors) {
  try {
    rl::check_pace(config, collectors);
  } catch (const divisi::UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(PaceTest, NoAcceptedConfigurationStandsStill) {
  int accepted = 0;
  int refused = 0;
  for (const char* const preset : {"short", "long"}) {
    for (const char* const batch : {"1", "64", "100", "1024"}) {
      for (const char* const per_insert : {"0", "0.5", "1", "16", "1000"}) {
        for (const char* const staleness : {"0", "1", "4", "30"}) {
          for (const char* const publish : {"1", "120"}) {
            rl::DqnConfig config = parse({"--preset", preset}).config;
            config.set("policy.learn.batch_size", batch);
            config.set("policy.other.replay_buffer.samples_per_insert", per_insert);
            config.set("policy.collect.max_staleness", staleness);
            config.set("policy.learn.publish_freq", publish);
            for (int collectors = 1; collectors <= 8; ++collectors) {
              const std::string why = refusal(config, collectors);
              ++(why.empty() ? accepted : refused);
              if (config.max_staleness == 0) {
                ASSERT_EQ(why, "");
              }
              if (!why.empty()) continue;
              for (int first = 0; first < collectors + 2; first += std::max(1, collectors / 2)) {
                ASSERT_TRUE(Job(config, collectors).sends(4, static_cast<std::size_t>(first)))
                    << fmt::format(
                           "{} collectors, preset {}, batch {}, {} per insert, {} collects "
                           "with one set of weights, sent every {}, actor {} first",
                           collectors, preset, batch, per_insert, staleness, publish, first);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, refused);
  EXPECT_GT(refused, 100);
}

TEST(PaceTest, CollectorsThatBringTooFewRowsForNewWeightsAreRefusedWithTheNumbers) {
  rl::DqnConfig config;
  config.max_staleness = 4;
  EXPECT_THAT(
      [&] { rl::check_pace(config, 1); },
      ThrowsMessage<divisi::UsageError>(
          AllOf(HasSubstr("policy.collect.max_staleness=4"), HasSubstr("1 collector of 64 rows"),
                HasSubstr("bring 256 rows, the learner needs 320"), HasSubstr("Give 5 or more"))));
  EXPECT_FALSE(Job(config, 1).sends(100, 2));
  EXPECT_EQ(refusal(config, 2), "");
  config.max_staleness = 5;
  EXPECT_EQ(refusal(config, 1), "");
  EXPECT_TRUE(Job(config, 1).sends(100, 2));
}

TEST(PaceTest, CollectorsThatNeverFillTheFirstBatchAreRefused) {
  rl::DqnConfig config;
  config.max_staleness = 1;
  config.samples_per_insert = 0;
  config.batch_size = 129;
  EXPECT_THAT(refusal(config, 2), HasSubstr("2 collectors of 64 rows"));
  EXPECT_FALSE(Job(config, 2).sends(2, 3));
  config.batch_size = 128;
  EXPECT_EQ(refusal(config, 2), "");
  EXPECT_TRUE(Job(config, 2).sends(100, 3));
}

TEST(PaceTest, ALearnerThatWouldHardlyTrainIsRefusedWithTheNumbers) {
  rl::DqnConfig config;
  config.samples_per_insert = 0.0005;
  EXPECT_THAT(refusal(config, 2),
              AllOf(HasSubstr("samples_per_insert=0.0005"), HasSubstr("8 x 64 / 0.0005 = 1024000"),
                    HasSubstr("max_env_step=1000000")));
  config.max_env_step = 1'024'000;
  EXPECT_EQ(refusal(config, 2), "");
}

TEST(PaceTest, TheCollectorsOfAJobAreCounted) {
  EXPECT_EQ(collectors(parse({})), 2);
  EXPECT_EQ(collectors(parse({"--roles", "collector,replay,learner,evaluator"})), 1);
  EXPECT_EQ(collectors(parse({"--parallel-workers", "2"})), 1);
  EXPECT_EQ(collectors(parse({"--parallel-workers", "3"})), 1);
  EXPECT_EQ(collectors(parse({"--parallel-workers", "8"})), 6);
}

}  // namespace
}  // namespace cartpole
