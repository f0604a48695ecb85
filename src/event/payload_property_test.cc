// Generated payloads: whatever is written reads back the same, and no bytes at all can do more
// than raise a PayloadError.
#include "divisi/payload.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace divisi {

struct Sample {
  std::int32_t id = 0;
  std::string label;
  std::map<std::string, std::vector<std::int16_t>> series;
  std::optional<bool> flag;
  bool operator==(const Sample&) const = default;
};
DIVISI_FIELDS(Sample, id, label, series, flag)

namespace {

// A few elements: the sizes of nested containers multiply.
template <class Container, class... Gen>
rc::Gen<Container> few(Gen... element) {
  return rc::gen::mapcat(rc::gen::inRange<std::size_t>(0, 5), [=](std::size_t count) {
    return rc::gen::container<Container>(count, element...);
  });
}

rc::Gen<Value> any_value(int depth) {
  using rc::gen::arbitrary;
  using rc::gen::map;
  const auto scalar = rc::gen::oneOf(
      rc::gen::just(Value()), map(arbitrary<bool>(), [](bool value) { return Value(value); }),
      map(arbitrary<std::int64_t>(), [](std::int64_t value) { return Value(value); }),
      map(arbitrary<std::uint64_t>(), [](std::uint64_t value) { return Value(value); }),
      map(arbitrary<double>(), [](double value) { return Value(value); }),
      map(arbitrary<std::string>(), [](const std::string& value) { return Value(value); }),
      map(arbitrary<std::string>(),
          [](const std::string& value) { return Value(Buffer::copy_of(value)); }),
      map(rc::gen::inRange<std::size_t>(0, 3 * kOutOfBand),
          [](std::size_t size) { return Value(Buffer::copy_of(std::string(size, 'b'))); }),
      map(arbitrary<std::vector<float>>(), [](const std::vector<float>& elements) {
        const auto count = static_cast<std::int64_t>(elements.size());
        return Value(Tensor::copy_of<float>({1, count}, elements));
      }));
  if (depth == 0) return scalar;
  const auto array = map(few<Value::Array>(any_value(depth - 1)),
                         [](const Value::Array& items) { return Value(items); });
  const auto pairs = map(few<Value::Map>(rc::gen::pair(scalar, any_value(depth - 1))),
                         [](const Value::Map& items) { return Value(items); });
  return rc::gen::oneOf(scalar, array, pairs);
}

RC_GTEST_PROP(PayloadProperty, AnyValueReadsBackTheSame, ()) {
  Args args;
  args.values = *few<Value::Array>(any_value(3));
  args.kwargs = *few<Kwargs>(rc::gen::arbitrary<std::string>(), any_value(1));
  PackScratch scratch;
  const Payload payload = Payload::copy_of(pack_args(scratch, args));
  RC_ASSERT(unpack_any(payload.view()) == args);
}

RC_GTEST_PROP(PayloadProperty, TypedArgumentsReadBackTheSame,
              (std::int64_t a, std::uint8_t b, double c, const std::string& d,
               const std::vector<std::pair<int, std::string>>& e, std::int32_t id,
               const std::map<std::string, std::vector<std::int16_t>>& series)) {
  const Sample sample{id, d, series, b % 3 == 0 ? std::nullopt : std::optional<bool>(b % 3 == 1)};
  PackScratch scratch;
  const PayloadView& view = pack_args(scratch, a, b, c, d, e, sample);
  const auto read = unpack_args<std::int64_t, std::uint8_t, double, std::string,
                                std::vector<std::pair<int, std::string>>, Sample>(view);
  RC_ASSERT(read == std::tuple(a, b, c, d, e, sample));
}

RC_GTEST_PROP(PayloadProperty, AnIntegerArrivesIfAndOnlyIfItFits, (std::int64_t value)) {
  PackScratch scratch;
  const PayloadView& view = pack_args(scratch, value);
  try {
    RC_ASSERT(std::get<0>(unpack_args<std::int16_t>(view)) == value);
    RC_ASSERT(value >= -32768 && value <= 32767);
  } catch (const PayloadError&) {
    RC_ASSERT(value < -32768 || value > 32767);
  }
}

RC_GTEST_PROP(PayloadProperty, DamagedBytesRaiseAnErrorOrReadAsSomethingElse, ()) {
  const auto values = *few<Value::Array>(any_value(2));
  PackScratch scratch;
  Payload payload = Payload::copy_of(pack_args(scratch, Args{values, {}}));
  Buffer body = Buffer::copy_of(payload.body.bytes());
  const auto hits = *rc::gen::inRange(1, 8);
  for (int i = 0; i < hits && !body.empty(); ++i) {
    body.mutable_data()[*rc::gen::inRange<std::size_t>(0, body.size())] =
        std::byte(*rc::gen::arbitrary<std::uint8_t>());
  }
  payload.body = body.slice(0, *rc::gen::inRange<std::size_t>(0, body.size() + 1));
  payload.codec = Codec::kNative;
  payload.has_kwargs = *rc::gen::arbitrary<bool>();
  try {
    unpack_any(payload.view());
  } catch (const PayloadError&) {
  }
  try {
    unpack_args<Sample, std::string_view, std::vector<double>>(payload.view());
  } catch (const PayloadError&) {
  }
}

}  // namespace
}  // namespace divisi
