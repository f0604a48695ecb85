#include "tune_run/plots.h"

#include "tune_run/queries.h"
#include "tune_run/status_view.h"
#include "tune_run/svg.h"
#include "tune_run/value_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::tune_run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

StudyData small_study(std::size_t objectives) {
  StudyData data;
  data.spec.name = "a<b";
  data.spec.maximize.assign(objectives, true);
  data.names = {"lr", "kind"};
  data.spaces = {tune::Space::continuous(-5, 0), tune::Space::fixed(2)};
  for (int i = 1; i <= 3; ++i) {
    StudyTrial trial;
    trial.record.id = static_cast<std::uint64_t>(i);
    trial.record.stage = i == 3 ? tune::TrialStage::kFail : tune::TrialStage::kOk;
    trial.record.raw = {-1.0 * i, i % 2 == 0 ? 0.0 : 1.0};
    if (i < 3) trial.record.values.assign(objectives, i);
    trial.variables = {Value(0.1 * i), Value(i % 2 == 0 ? "x{}" : "\"y\"")};
    data.trials.push_back(trial);
  }
  return data;
}

TEST(PlotsTest, EveryKindIsDrawnWithEscapedNames) {
  const StudyData data = small_study(2);
  for (const char* kind : {"history", "parallel", "slice", "pareto"}) {
    const auto svg = plot(data, *parse_plot_kind(kind));
    ASSERT_TRUE(svg.has_value()) << kind;
    EXPECT_THAT(*svg, HasSubstr("a&lt;b")) << kind;
    EXPECT_THAT(*svg, Not(HasSubstr("nan"))) << kind;
  }
  EXPECT_THAT(*plot(data, PlotKind::kImportance, {{"lr", 0.9}, {"kind", 0.1}}),
              HasSubstr("90.0 %"));
}

TEST(PlotsTest, NothingToDrawIsSaid) {
  StudyData data = small_study(1);
  EXPECT_THAT(plot(data, PlotKind::kPareto).error().message(), HasSubstr("one objective"));
  data.trials.resize(0);
  EXPECT_THAT(plot(data, PlotKind::kHistory).error().message(), HasSubstr("nothing to draw"));
  EXPECT_THAT(parse_plot_kind("histroy").error().message(), HasSubstr("did you mean 'history'?"));
}

TEST(PlotsTest, TicksAreRound) {
  EXPECT_THAT(Scale(0.13, 0.97, false, 0, 1).ticks(),
              ElementsAre(0.2, 0.4, testing::DoubleEq(0.6), 0.8, 1));
  EXPECT_THAT(Scale(1e-5, 1e-1, true, 0, 1).ticks(),
              ElementsAre(testing::DoubleEq(1e-5), testing::DoubleEq(1e-4), testing::DoubleEq(1e-3),
                          testing::DoubleEq(1e-2), testing::DoubleEq(1e-1)));
  EXPECT_EQ(tick_text(12000), "12,000");
  EXPECT_EQ(tick_text(-0.25), "-0.25");
  EXPECT_EQ(shortened("größer", 4), "größ…");
}

TEST(QueriesTest, ATextOfSeveralLinesIsOneCellOfCsv) {
  StudyData data = small_study(1);
  data.trials.resize(1);
  data.trials[0].record.error = "first line\nsecond line";
  const std::string text = export_csv(data);
  EXPECT_THAT(text, ::testing::EndsWith(",\"first line\nsecond line\"\n"));
}

TEST(StudyDataTest, ParetoFrontIsWhatNothingBeats) {
  StudyData data = small_study(2);
  data.trials[0].record.values = {1, 5};
  data.trials[1].record.values = {2, 3};
  EXPECT_EQ(data.pareto().size(), 2U);
  data.trials[1].record.values = {1, 5};
  EXPECT_EQ(data.pareto().size(), 2U);  // equal ones do not beat each other
  data.trials[1].record.values = {0, 5};
  ASSERT_EQ(data.pareto().size(), 1U);
  EXPECT_EQ(data.pareto().front()->record.id, 1U);
}

TEST(StatusViewTest, H083TableOfTheSixLists) {
  RunState state;
  state.defined = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  state.running = {8};
  state.waiting = {9, 10, 11};
  state.finished = {0, 1, 2, 3, 4, 5, 6, 7};
  state.success = {1, 3, 4, 5, 6, 7};
  state.abnormal = {0, 2};
  EXPECT_EQ(status_table(state, false),
            "+---------------+----------------------------------------+\n"
            "| status        | instances                              |\n"
            "+===============+========================================+\n"
            "| task_defined  | [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] |\n"
            "+---------------+----------------------------------------+\n"
            "| task_running  | [8]                                    |\n"
            "+---------------+----------------------------------------+\n"
            "| task_waiting  | [9, 10, 11]                            |\n"
            "+---------------+----------------------------------------+\n"
            "| task_finished | [0, 1, 2, 3, 4, 5, 6, 7]               |\n"
            "+---------------+----------------------------------------+\n"
            "| task_success  | [1, 3, 4, 5, 6, 7]                     |\n"
            "+---------------+----------------------------------------+\n"
            "| task_abnormal | [0, 2]                                 |\n"
            "+---------------+----------------------------------------+");
  EXPECT_THAT(status_table(state, true), HasSubstr("task_pruned"));
}

TEST(StatusViewTest, LongListsAreRanges) {
  std::vector<std::uint64_t> tasks;
  for (std::uint64_t i = 0; i < 41; ++i) {
    if (i != 8 && i != 10 && i != 11) tasks.push_back(i);
  }
  EXPECT_EQ(task_list(tasks), "[0-7, 9, 12-40]");
  EXPECT_EQ(task_list({}), "[]");
}

}  // namespace
}  // namespace divisi::tune_run
