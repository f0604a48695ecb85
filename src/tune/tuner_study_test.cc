// A Tuner whose trials are kept in a study.
#include "divisi/error.h"
#include "divisi/study.h"
#include "divisi/tune.h"
#include "tune/value_json.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <unistd.h>

namespace divisi::tune {
namespace {

class TunerStudyTest : public testing::Test {
 protected:
  TunerStudyTest() {
    std::string name = (std::filesystem::temp_directory_path() / "divisi_tuner_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    url_ = folder_ + "/study.db";
  }
  ~TunerStudyTest() override { std::filesystem::remove_all(folder_); }

  // Ends after `until` calls.
  Tuner tuner(int until) {
    Tuner made = tune([this](const Value& config) -> Value {
      ++calls_;
      const double x = config.at("x").as<double>();
      return Value(Value::Map{{Value("loss"), Value(x * x)}});
    });
    const auto enough = [this, until](const Record&) { return Value(calls_ >= until); };
    made.max_workers(1).minimize(R["loss"]).stop_when(Expr::function("enough", enough));
    made.max_steps(12).storage(url_, "s").resume();
    made.spaces({{"x", uniform(-1, 1)}, {"n", randint(0, 9)}, {"c", choice({"a", "b"})}});
    return made;
  }

  std::string folder_;
  std::string url_;
  std::atomic<int> calls_ = 0;
};

TEST_F(TunerStudyTest, ASearchGoesOnWhereItEnded) {
  tuner(5).bayes({.seed = 3}).run();
  EXPECT_EQ(Study::load(url_, "s").size(), 5U);
  const std::optional<Best> best = tuner(1000).bayes({.seed = 3}).run();
  EXPECT_EQ(calls_, 12);
  url_ = folder_ + "/whole.jsonl";
  calls_ = 0;
  const std::optional<Best> whole = tuner(1000).bayes({.seed = 3}).run();
  ASSERT_TRUE(best && whole);
  EXPECT_EQ(best->trial_id, whole->trial_id);
  EXPECT_EQ(best->config, whole->config);
  EXPECT_EQ(best->returned, whole->returned);
  // Nothing is left to do: the result is that of the study.
  const std::optional<Best> again = tuner(1000).bayes({.seed = 3}).run();
  EXPECT_EQ(calls_, 12);
  EXPECT_EQ(again->config, whole->config);
}

TEST_F(TunerStudyTest, OfEqualResultsTheFirstIsTheParetoSet) {
  Tuner tuner = tune([](const Value&) -> Value { return 0.0; });
  tuner.random(1).max_steps(5).max_workers(1).minimize(R).spaces({{"x", uniform(-1, 1)}});
  tuner.storage(url_, "s").run();
  ASSERT_EQ(tuner.pareto().size(), 1U);
  EXPECT_EQ(tuner.pareto()[0].id, 1U);
}

TEST_F(TunerStudyTest, ARandomSearchKeepsTheSeedThatItChose) {
  tuner(5).random().run();
  tuner(1000).random().run();
  const Study study = Study::load(url_, "s");
  ASSERT_EQ(study.size(), 12U);
  url_ = folder_ + "/whole.db";
  calls_ = 0;
  const std::string options = study.spec().options;  // {"seed":"..."}
  const std::string digits = options.substr(9, options.size() - 11);
  tuner(1000).random(std::stoull(digits)).run();
  const Study whole = Study::load(url_, "s");
  for (std::uint64_t id = 1; id <= 12; ++id) EXPECT_EQ(study.trial(id)->raw, whole.trial(id)->raw);
}

TEST_F(TunerStudyTest, WrongSettingsAndPlacesThrowAndLeaveNothing) {
  EXPECT_THROW(tuner(5).max_steps(std::nullopt).grid().run(), UsageError);
  EXPECT_FALSE(std::filesystem::exists(url_));
  tuner(3).grid().run();
  EXPECT_THROW(tuner(3).grid().resume(false).run(), Error);
  EXPECT_THROW(tuner(3).grid().spaces({{"x", uniform(-1, 2)}}).run(), UsageError);
  EXPECT_THROW(tuner(3).grid().storage("nowhere").run(), UsageError);
}

TEST(ValueJsonTest, ValuesAreTheSameAfterStoring) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Value> values{Value(),
                                  Value(true),
                                  Value(-5),
                                  Value(std::numeric_limits<std::uint64_t>::max()),
                                  Value(0.1),
                                  Value(inf),
                                  Value(-inf),
                                  Value("text\n\""),
                                  Value(Buffer::copy_of("")),
                                  Value(Buffer::copy_of("a")),
                                  Value(Buffer::copy_of("ab")),
                                  Value(Buffer::copy_of(std::string_view("\0\xff z", 4))),
                                  Value(Value::Array{Value(1), Value(Value::Array{})}),
                                  Value(Value::Map{{Value("a"), Value(1)}, {Value("b"), Value()}}),
                                  Value(Value::Map{{Value(1), Value("x")}}),
                                  Value(Value::Map{{Value("$int"), Value("x")}})};
  for (const Value& value : values) {
    EXPECT_EQ(value_from_json(value_to_json(value)), value) << value_to_json(value);
  }
  EXPECT_TRUE(std::isnan(value_from_json(value_to_json(Value(std::nan("")))).as<double>()));
  EXPECT_TRUE(value_from_json("").is_nil());
}

}  // namespace
}  // namespace divisi::tune
