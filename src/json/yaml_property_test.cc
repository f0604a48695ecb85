// Any value, printed as YAML or JSON, reads back as the same value.
#include "json/yaml.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <string>

namespace divisi::json {
namespace {

// A few elements: the sizes of nested containers multiply.
template <class Container, class Gen>
rc::Gen<Container> few(Gen element) {
  return rc::gen::mapcat(rc::gen::inRange<std::size_t>(0, 5), [=](std::size_t count) {
    return rc::gen::container<Container>(count, element);
  });
}

// Text made of the pieces that YAML has rules for.
rc::Gen<std::string> texts() {
  const auto piece = rc::gen::elementOf(std::vector<std::string>{"a",
                                                                 "y",
                                                                 "no",
                                                                 "12",
                                                                 "0x1f",
                                                                 ".5",
                                                                 "1e3",
                                                                 " ",
                                                                 "\n",
                                                                 ": ",
                                                                 ":",
                                                                 "#",
                                                                 " #",
                                                                 "-",
                                                                 "- ",
                                                                 "?",
                                                                 "'",
                                                                 "\"",
                                                                 "\\",
                                                                 "\t",
                                                                 "\r",
                                                                 "[",
                                                                 "]",
                                                                 "{",
                                                                 "}",
                                                                 ",",
                                                                 "&x",
                                                                 "*x",
                                                                 "!",
                                                                 "|",
                                                                 ">",
                                                                 "%",
                                                                 "@",
                                                                 "`",
                                                                 "~",
                                                                 "null",
                                                                 "<<",
                                                                 "---",
                                                                 "...",
                                                                 "\x7f",
                                                                 "\x01",
                                                                 "\xc2\x85",
                                                                 "\xe2\x80\xa8",
                                                                 "\xef\xbb\xbf",
                                                                 "\xc3\xa9",
                                                                 "\xf0\x9f\x98\x80",
                                                                 ".inf",
                                                                 ".nan",
                                                                 "=",
                                                                 "1_0",
                                                                 "\xef\xbf\xbe",
                                                                 "0o7",
                                                                 "+1",
                                                                 "_"});
  return rc::gen::map(few<std::vector<std::string>>(piece), [](const auto& pieces) {
    std::string text;
    for (const std::string& each : pieces) text += each;
    return text;
  });
}

rc::Gen<Value> values(int depth) {
  const auto scalar = rc::gen::oneOf(
      rc::gen::just(Value()),
      rc::gen::map(rc::gen::arbitrary<bool>(), [](bool b) { return Value(b); }),
      rc::gen::map(rc::gen::arbitrary<std::int64_t>(), [](std::int64_t i) { return Value(i); }),
      rc::gen::map(rc::gen::arbitrary<double>(), [](double d) { return Value(d); }),
      rc::gen::elementOf(std::vector<Value>{Value(0.0), Value(-0.0), Value(1e300), Value(5e-324),
                                            Value(1e15), Value(1e16), Value(0.1),
                                            Value(std::numeric_limits<std::int64_t>::min())}),
      rc::gen::map(texts(), [](std::string text) { return Value(std::move(text)); }));
  if (depth == 0) return scalar;
  const auto items = few<Array>(values(depth - 1));
  const auto members = few<Object>(rc::gen::pair(texts(), values(depth - 1)));
  return rc::gen::oneOf(scalar,
                        rc::gen::map(items, [](Array array) { return Value(std::move(array)); }),
                        rc::gen::map(members, [](const Object& drawn) {
                          Value object{Object{}};
                          for (const auto& [key, value] : drawn)
                            object[key] = value;  // a key only once
                          return object;
                        }));
}

TEST(YamlPropertyTest, WhatIsPrintedReadsBackAsTheSameValue) {
  EXPECT_TRUE(rc::check([] {
    const Value value = *values(3);
    const std::string text = print_yaml(value);
    const auto again = parse_yaml_one(text);
    if (!again) RC_FAIL(text + "\n" + again.error().message());
    RC_LOG(text);
    RC_ASSERT(*again == value);
  }));
}

TEST(YamlPropertyTest, PrintedJsonReadsBackAsAnEquivalentValue) {
  EXPECT_TRUE(rc::check([] {
    const Value value = *values(2);
    const auto again = parse(print(value));
    RC_ASSERT(again.has_value());
    RC_ASSERT(equivalent(*again, value));
  }));
}

}  // namespace
}  // namespace divisi::json
