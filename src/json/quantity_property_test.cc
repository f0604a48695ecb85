// Quantities against exact arithmetic on their numbers.
#include "json/quantity.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace divisi::json {
namespace {

__extension__ using Wide = __int128;

// A suffix, and what it multiplies by, in thousandths.
using Unit = std::pair<std::string, Wide>;

rc::Gen<Unit> units() {
  std::vector<Unit> all = {{"m", 1}, {"", 1000}, {"k", 1000'000}, {"e3", 1000'000}, {"e-2", 10}};
  Wide binary = 1000;
  for (const char* suffix : {"Ki", "Mi", "Gi", "Ti"}) all.emplace_back(suffix, binary *= 1024);
  return rc::gen::elementOf(all);
}

struct Drawn {
  Quantity quantity;
  Wide exact = 0;  // in thousandths of thousandths
};

Drawn draw() {
  const auto number = *rc::gen::inRange<std::int64_t>(-4'000'000, 4'000'000);
  const Unit unit = *units();
  const std::int64_t whole = number < 0 ? -number : number;
  const std::string text =
      fmt::format("{}{}.{:03}{}", number < 0 ? "-" : "", whole / 1000, whole % 1000, unit.first);
  const auto parsed = Quantity::parse(text);
  RC_ASSERT(parsed.has_value());
  return {*parsed, Wide{number} * unit.second};
}

TEST(QuantityPropertyTest, WhatIsPrintedReadsBackAsTheSameAmount) {
  EXPECT_TRUE(rc::check([] {
    const Drawn drawn = draw();
    const std::string text = drawn.quantity.to_string();
    const auto again = Quantity::parse(text);
    RC_ASSERT(again.has_value());
    RC_ASSERT(*again == drawn.quantity);
    RC_ASSERT(again->to_string() == text);
    RC_ASSERT(text.find('.') == std::string::npos);
  }));
}

TEST(QuantityPropertyTest, OrderIsThatOfTheExactNumbers) {
  EXPECT_TRUE(rc::check([] {
    const Drawn a = draw();
    const Drawn b = draw();
    RC_ASSERT((a.quantity < b.quantity) == (a.exact < b.exact));
    RC_ASSERT((a.quantity == b.quantity) == (a.exact == b.exact));
  }));
}

TEST(QuantityPropertyTest, SumsAndDifferencesAreExact) {
  EXPECT_TRUE(rc::check([] {
    const Drawn a = draw();
    const Drawn b = draw();
    const Quantity sum = a.quantity + b.quantity;
    RC_ASSERT(sum - b.quantity == a.quantity);
    RC_ASSERT((sum > a.quantity) == (b.exact > 0));
    RC_ASSERT(sum == b.quantity + a.quantity);
    const Wide exact = a.exact + b.exact;
    RC_ASSERT((sum.sign() > 0) == (exact > 0));
    const Wide units = exact / 1'000'000;
    const Wide rest = exact % 1'000'000;
    RC_ASSERT(Wide{sum.value()} == units + (rest > 0 ? 1 : 0) - (rest < 0 ? 1 : 0));
  }));
}

}  // namespace
}  // namespace divisi::json
