#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace divisi {
namespace {

Result<int> parse(const std::string& text) {
  if (text != "7") return failure(Code::kInvalid, "'{}' is not a number", text);
  return 7;
}

Result<std::unique_ptr<int>> boxed(const std::string& text) {
  DIVISI_TRY(const int value, parse(text));
  return std::make_unique<int>(value);
}

Status both(const std::string& first, const std::string& second, int* reached) {
  const auto check = [](const std::string& text) {
    const auto value = parse(text);
    return value ? Status() : value.error();
  };
  DIVISI_TRY_STATUS(check(first));
  ++*reached;
  DIVISI_TRY_STATUS(check(second));
  ++*reached;
  return {};
}

template <class Exception>
Exception thrown_by(const Status& status) {
  try {
    throw_if_failed(status);
  } catch (const Exception& error) {
    return error;
  }
  throw std::logic_error("nothing of that type was thrown");
}

TEST(StatusTest, IsOkUnlessSaidOtherwise) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), Code::kOk);
  const Status failed = make_status(Code::kTimeout, "no answer from node {}", 3);
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.code(), Code::kTimeout);
  EXPECT_EQ(failed.message(), "no answer from node 3");
}

TEST(StatusTest, TakesAFactOnTheWayUp) {
  const Status failed(Code::kNotFound, "no such file");
  EXPECT_EQ(failed.with_context("opening a.zip").message(), "opening a.zip: no such file");
  EXPECT_EQ(failed.with_context("opening a.zip").code(), Code::kNotFound);
  EXPECT_TRUE(Status().with_context("opening a.zip").ok());
}

TEST(StatusTest, TryPassesTheValueOnOrReturnsTheFailure) {
  auto value = boxed("7");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(**value, 7);
  auto failed = boxed("x");
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message(), "'x' is not a number");
}

TEST(StatusTest, TryStatusStopsAtTheFirstFailure) {
  int reached = 0;
  EXPECT_TRUE(both("7", "7", &reached).ok());
  EXPECT_EQ(reached, 2);
  reached = 0;
  EXPECT_EQ(both("7", "y", &reached).message(), "'y' is not a number");
  EXPECT_EQ(reached, 1);
}

TEST(StatusTest, BecomesTheExceptionOfItsCode) {
  EXPECT_NO_THROW(throw_if_failed(Status()));
  EXPECT_STREQ(thrown_by<UsageError>(Status(Code::kInvalid, "bad")).what(), "bad");
  EXPECT_STREQ(thrown_by<TimeoutError>(Status(Code::kTimeout, "late")).what(), "late");
  EXPECT_EQ(thrown_by<Error>(Status(Code::kClosed, "gone")).code(), Code::kClosed);
}

TEST(StatusTest, GivesEveryCodeANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::kWouldBlock); ++code) {
    names.insert(code_name(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::kWouldBlock) + 1);
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(StatusTest, ReadsErrnoValues) {
  EXPECT_EQ(errno_text(ENOENT), "No such file or directory");
}

TEST(StatusDeathTest, ABrokenInvariantSaysWhatItMeansAndAborts) {
  EXPECT_EXIT(DIVISI_CHECK(1 + 1 == 3, "sums are right"), ::testing::KilledBySignal(SIGABRT),
              "broken invariant: sums are right.*1 \\+ 1 == 3");
  DIVISI_CHECK(1 + 1 == 2, "a true condition passes");
}

}  // namespace
}  // namespace divisi
