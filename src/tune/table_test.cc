#include "divisi/error.h"
#include "divisi/sampler.h"

#include <gtest/gtest.h>

namespace divisi::tune {
namespace {

using Rows = std::vector<std::vector<Cell>>;

TEST(TableTest, PsqlAlignsDecimalPoints) {
  EXPECT_EQ(format_table({"#", "opt", "target"}, Rows{{12, "adam", 99.5}, {2, "rmsprop", 95.25}},
                         TableStyle::kPsql),
            "+-----+---------+----------+\n"
            "|   # | opt     |   target |\n"
            "|-----+---------+----------|\n"
            "|  12 | adam    |    99.5  |\n"
            "|   2 | rmsprop |    95.25 |\n"
            "+-----+---------+----------+");
}

TEST(TableTest, WholeNumbersStandLeftOfThePoint) {
  EXPECT_EQ(
      format_table({"x"}, Rows{{7}, {0.125}, {std::monostate()}, {1.0 / 3}}, TableStyle::kPsql),
      "+----------+\n"
      "|        x |\n"
      "|----------|\n"
      "| 7        |\n"
      "| 0.125    |\n"
      "|          |\n"
      "| 0.333333 |\n"
      "+----------+");
}

TEST(TableTest, GridOfTaskStates) {
  EXPECT_EQ(format_table({"status", "instances"},
                         Rows{{"task_defined", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]"},
                              {"task_running", "[8]"}},
                         TableStyle::kGrid),
            "+--------------+----------------------------------------+\n"
            "| status       | instances                              |\n"
            "+==============+========================================+\n"
            "| task_defined | [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] |\n"
            "+--------------+----------------------------------------+\n"
            "| task_running | [8]                                    |\n"
            "+--------------+----------------------------------------+");
}

TEST(TableTest, TextWithNewlineStaysInItsCell) {
  EXPECT_EQ(format_table({"a"}, Rows{{"x\ny"}}, TableStyle::kPsql),
            "+-----+\n| a   |\n|-----|\n| x y |\n+-----+");
  EXPECT_EQ(format_table({"a"}, Rows{{"\u00e4\u00f6\u00fc"}}, TableStyle::kPsql),
            "+-----+\n| a   |\n|-----|\n| \u00e4\u00f6\u00fc |\n+-----+");
}

TEST(TableTest, RowOfWrongLengthIsUsageError) {
  EXPECT_THROW(format_table({"a", "b"}, Rows{{1}}, TableStyle::kPsql), UsageError);
}

}  // namespace
}  // namespace divisi::tune
