#include "divisi/payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace divisi {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;
using namespace std::string_view_literals;

struct Point {
  double x = 0;
  double y = 0;
  std::vector<std::string> tags;
  bool operator==(const Point&) const = default;
};
DIVISI_FIELDS(Point, x, y, tags)

struct Node {  // recursive
  int value = 0;
  std::vector<Node> children;
  bool operator==(const Node&) const = default;
};
DIVISI_FIELDS(Node, value, children)

struct Empty {
  bool operator==(const Empty&) const = default;
};
DIVISI_FIELDS(Empty)

enum class Colour : std::uint8_t { kRed = 1, kBlue = 200 };

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

Buffer from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Buffer buffer(text.size() / 2);
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    buffer.mutable_data()[i] = std::byte(16 * digit(text[2 * i]) + digit(text[2 * i + 1]));
  }
  return buffer;
}

Payload native(std::string_view text, std::vector<Buffer> buffers = {}, bool has_kwargs = false) {
  return {Codec::kNative, has_kwargs, from_hex(text), std::move(buffers)};
}

template <class... T>
std::string packed(const T&... args) {
  PackScratch scratch;
  return hex(pack_args(scratch, args...).body);
}

template <class T>
T round_trip(const T& value) {
  PackScratch scratch;
  // A second argument, so that bytes travel as MessagePack too.
  return std::get<0>(unpack_args<T, int>(pack_args(scratch, value, 7)));
}

template <class... T>
std::string error_of(const PayloadView& view) {
  try {
    unpack_args<T...>(view);
  } catch (const PayloadError& error) {
    return error.what();
  }
  return "no error";
}

template <class To, class From>
std::string conversion_error(const From& value) {
  PackScratch scratch;
  return error_of<To>(pack_args(scratch, value));
}

// The bytes were written by msgpack 1.0.3 for Python: msgpack.packb(value, use_bin_type=True).hex()
TEST(PayloadTest, WritesTheBytesThatPythonMsgpackWrites) {
  EXPECT_EQ(
      packed(nullptr, true, false, 0, 127, 128, -1, -32, -33, 255, 256, 65535, 65536, 0xffffffffu,
             std::uint64_t{1} << 32, std::uint64_t{1} << 63,
             std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::int64_t>::min(),
             -128, -129, -32769, std::int64_t{-2147483649}, 1.5),
      "dc0017c0c3c2007fcc80ffe0d0dfccffcd0100cdffffce00010000ceffffffffcf0000000100000000"
      "cf8000000000000000cfffffffffffffffffd38000000000000000d080d1ff7fd2ffff7fffd3ffffffff"
      "7fffffffcb3ff8000000000000");
  EXPECT_EQ(packed("", "a"s, std::string(31, 'x'),
                   std::string_view("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), "\xc3\xa9"),
            "95a0a161bf78787878787878787878787878787878787878787878787878787878787878d92078787878"
            "78787878787878787878787878787878787878787878787878787878a2c3a9");
  EXPECT_EQ(packed(std::vector<std::byte>(), Buffer::copy_of("\0\xff"sv)), "92c400c40200ff");
  EXPECT_EQ(packed(std::tuple(1, std::tuple(2, "b"s)),
                   Value(Value::Map{{"k", 1.5}, {"l", Value::Array{true, nullptr}}})),
            "9292019202a16282a16bcb3ff8000000000000a16c92c3c0");
  EXPECT_EQ(packed(Point{1.0, -2.5, {"a"}}),
            "9183a178cb3ff0000000000000a179cbc004000000000000a47461677391a161");
  EXPECT_EQ(packed(1.5f), "91ca3fc00000");
  EXPECT_EQ(packed(1, kw("x", 2)), "920181a17802");
  const std::array<float, 2> elements = {1, 2};
  EXPECT_EQ(packed(Tensor::copy_of<float>({2, 1}, elements)),
            "91c71c020b020000020000000000000001000000000000000000803f00000040");
}

TEST(PayloadTest, ReadsTheBytesThatPythonMsgpackWrites) {
  const Payload point = native("9184a17a920181a17102a179cbc004000000000000a17801a47461677390");
  EXPECT_EQ(std::get<0>(unpack_args<Point>(point.view())), (Point{1, -2.5, {}}))
      << "in another order, with a key it does not know";
  const Payload nested = native("9292019202a16282a16bcb3ff8000000000000a16c92c3c0");
  const Args args = unpack_any(nested.view());
  EXPECT_EQ(args.at(0).at(1).at(1), Value("b"));
  EXPECT_EQ(args.at(1).at("l").at(0), Value(true));
  EXPECT_TRUE(args.at(1).at("l").at(1).is_nil());
  const Payload keys = native("918201a16102a162");
  using ById = std::unordered_map<int, std::string>;
  EXPECT_EQ(std::get<0>(unpack_args<ById>(keys.view())), (ById{{1, "a"}, {2, "b"}}));
  const Payload list = native("91dc0010000102030405060708090a0b0c0d0e0f");
  EXPECT_EQ(std::get<0>(unpack_args<std::vector<std::uint8_t>>(list.view())).size(), 16u);
  const Payload reference = native("92d6010000000007", {Buffer::copy_of("beside"sv)});
  EXPECT_EQ((std::get<0>(unpack_args<Buffer, int>(reference.view())).text()), "beside");
}

TEST(PayloadTest, EveryTypeSurvivesARoundTrip) {
  EXPECT_EQ(round_trip(true), true);
  EXPECT_EQ(round_trip<std::int8_t>(-128), -128);
  EXPECT_EQ(round_trip(std::numeric_limits<std::uint64_t>::max()),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(round_trip(std::numeric_limits<std::int64_t>::min()),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(round_trip(0.1), 0.1);
  EXPECT_EQ(round_trip(0.1f), 0.1f);
  EXPECT_EQ(round_trip(std::numeric_limits<float>::infinity()),
            std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(round_trip(std::nan(""))));
  EXPECT_EQ(round_trip('x'), 'x');
  EXPECT_EQ(round_trip("with \0 inside"s), "with \0 inside"s);
  EXPECT_EQ(round_trip(Colour::kBlue), Colour::kBlue);
  EXPECT_EQ(round_trip(std::optional<int>()), std::nullopt);
  EXPECT_EQ(round_trip(std::optional<int>(3)), 3);
  EXPECT_EQ(round_trip(std::vector<bool>{true, false}), (std::vector<bool>{true, false}));
  EXPECT_EQ(round_trip(std::vector<std::byte>{std::byte{1}}), std::vector<std::byte>{std::byte{1}});
  EXPECT_EQ(round_trip(std::array<int, 2>{1, 2}), (std::array<int, 2>{1, 2}));
  EXPECT_EQ(round_trip(std::pair(1, "a"s)), std::pair(1, "a"s));
  EXPECT_EQ(round_trip(std::tuple<>()), std::tuple<>());
  EXPECT_EQ(round_trip(std::map<std::string, std::vector<double>>{{"a", {1, 2}}, {"", {}}}),
            (std::map<std::string, std::vector<double>>{{"a", {1, 2}}, {"", {}}}));
  EXPECT_EQ(round_trip(std::map<Colour, int>{{Colour::kRed, 1}}),
            (std::map<Colour, int>{{Colour::kRed, 1}}));
  EXPECT_EQ(round_trip(Node{1, {Node{2, {}}, Node{3, {Node{4, {}}}}}}),
            (Node{1, {Node{2, {}}, Node{3, {Node{4, {}}}}}}));
  EXPECT_EQ(round_trip(Empty{}), Empty{});
}

TEST(PayloadTest, OneBytesArgumentIsRawAndNotCopied) {
  const Buffer buffer = Buffer::copy_of("raw"sv);
  PackScratch scratch;
  const PayloadView& view = pack_args(scratch, buffer);
  EXPECT_EQ(view.codec, Codec::kRaw);
  EXPECT_EQ(view.body.data(), buffer.data());
  EXPECT_EQ(std::get<0>(unpack_args<Buffer>(view)).data(), buffer.data());
  EXPECT_EQ(std::get<0>(unpack_args<std::span<const std::byte>>(view)).data(), buffer.data());
  EXPECT_EQ(std::get<0>(unpack_args<std::vector<std::byte>>(view)).size(), 3u);
  EXPECT_EQ(std::get<0>(unpack_args<Value>(view)), Value(buffer));
  EXPECT_EQ(error_of<std::string>(view), "argument 1: expected string, received 3 bytes");
}

TEST(PayloadTest, APickleIsOneOpaqueBytesArgument) {
  const Payload pickle{Codec::kPickle, false, Buffer::copy_of("\x80\x05."sv), {}};
  EXPECT_EQ(std::get<0>(unpack_args<Buffer>(pickle.view())).text(), "\x80\x05.");
  EXPECT_EQ(error_of<int>(pickle.view()),
            "argument 1: expected int32, received 3 bytes of a Python pickle");
}

TEST(PayloadTest, LargeBuffersAndTensorsStayBesideTheBody) {
  Buffer large(kOutOfBand);
  const Buffer small(kOutOfBand - 1);
  const Tensor tensor{DType::kUint8, {static_cast<std::int64_t>(kOutOfBand)}, large};
  PackScratch scratch;
  const PayloadView& view = pack_args(scratch, large, tensor, small);
  ASSERT_EQ(view.buffers.size(), 2u);
  EXPECT_EQ(view.buffers[0].data(), large.data());
  EXPECT_LT(view.body.size(), 2 * kOutOfBand);
  const auto [buffer, received, copy] = unpack_args<Buffer, Tensor, Buffer>(view);
  EXPECT_EQ(buffer.data(), large.data()) << "no copy";
  EXPECT_EQ(received.data.data(), large.data()) << "no copy";
  EXPECT_EQ(copy.text(), small.text());
  PackScratch second;
  EXPECT_EQ(hex(pack_args(second, tensor).body), "91d80202010100002000000000000000000000");
}

TEST(PayloadTest, ABufferSharesABodyThatHasAnOwner) {
  PackScratch scratch;
  const Payload owned = Payload::copy_of(pack_args(scratch, Buffer::copy_of("shared"sv), 1));
  const PayloadView view = owned.view();
  const Buffer part = std::get<0>(unpack_args<Buffer, int>(view));
  EXPECT_EQ(part.text(), "shared");
  EXPECT_GE(part.data(), owned.body.data());
  EXPECT_LT(part.data(), owned.body.data() + owned.body.size());
}

TEST(PayloadTest, AReceivedTensorIsAlignedForItsElements) {
  const std::array<double, 3> elements = {1, 2, 3};
  for (std::size_t shift = 0; shift < 8; ++shift) {
    PackScratch scratch;
    const std::string padding(shift, 'x');
    const Payload owned =
        Payload::copy_of(pack_args(scratch, padding, Tensor::copy_of<double>({3}, elements)));
    const Tensor tensor = std::get<1>(unpack_args<std::string, Tensor>(owned.view()));
    EXPECT_THAT(tensor.view<double>(), ::testing::ElementsAre(1, 2, 3));
    EXPECT_THROW(tensor.view<float>(), UsageError);
  }
}

TEST(PayloadTest, ATensorBesideTheBodyIsAlignedWhereverItsBytesArrived) {
  const std::vector<double> elements(kOutOfBand / sizeof(double), 0.5);
  PackScratch scratch;
  PayloadView view = pack_args(
      scratch, Tensor::copy_of<double>({static_cast<std::int64_t>(elements.size())}, elements));
  ASSERT_EQ(view.buffers.size(), 1u);
  Buffer block(kOutOfBand + 1);
  std::memcpy(block.mutable_data() + 1, view.buffers[0].data(), kOutOfBand);
  const std::vector<Buffer> odd = {block.slice(1, kOutOfBand)};
  view.buffers = odd;
  EXPECT_EQ(std::get<0>(unpack_args<Tensor>(view)).view<double>()[7], 0.5);
}

TEST(PayloadTest, ATensorThatContradictsItselfIsNotSent) {
  PackScratch scratch;
  EXPECT_THROW(pack_args(scratch, Tensor{DType::kFloat32, {2}, Buffer(4)}), UsageError);
  EXPECT_THROW(pack_args(scratch, Tensor{DType::kFloat32, {-1}, Buffer()}), UsageError);
  EXPECT_EQ(round_trip(Tensor()), Tensor()) << "an empty one is";
  EXPECT_EQ(round_trip(Tensor{DType::kInt8, {}, Buffer(1)}).shape.size(), 0u) << "and a scalar";
}

TEST(PayloadTest, NarrowingIsChecked) {
  EXPECT_EQ(conversion_error<std::uint8_t>(300),
            "argument 1: expected uint8, received 300, which does not fit");
  EXPECT_EQ(conversion_error<std::uint8_t>(255), "no error");
  EXPECT_EQ(conversion_error<unsigned>(-1),
            "argument 1: expected uint32, received -1, which does not fit");
  EXPECT_EQ(conversion_error<std::int64_t>(std::uint64_t{1} << 63),
            "argument 1: expected int64, received 9223372036854775808, which does not fit");
  EXPECT_EQ(conversion_error<int>(2.0), "no error");
  EXPECT_EQ(conversion_error<int>(2.5),
            "argument 1: expected int32, received 2.5, which does not fit");
  EXPECT_THAT(conversion_error<int>(std::nan("")), HasSubstr("does not fit"));
  EXPECT_THAT(conversion_error<std::int64_t>(0x1p63), HasSubstr("does not fit"));
  EXPECT_EQ(conversion_error<std::int64_t>(-0x1p63), "no error");
  EXPECT_THAT(conversion_error<std::uint64_t>(0x1p64), HasSubstr("does not fit"));
  EXPECT_EQ(conversion_error<double>(std::int64_t{1} << 62), "no error");
  EXPECT_EQ(conversion_error<float>(0.1), "no error") << "rounding is allowed";
  EXPECT_EQ(conversion_error<float>(std::numeric_limits<double>::infinity()), "no error");
  EXPECT_EQ(conversion_error<float>(1e300),
            "argument 1: expected float32, received 1e+300, which does not fit");
  EXPECT_EQ(conversion_error<bool>(1), "argument 1: expected bool, received integer 1");
  EXPECT_EQ(conversion_error<int>(true), "argument 1: expected int32, received bool true");
}

TEST(PayloadTest, ErrorsNameThePlaceTheExpectedAndTheReceivedType) {
  EXPECT_EQ(conversion_error<std::string>(5), "argument 1: expected string, received integer 5");
  EXPECT_EQ(conversion_error<std::vector<int>>("a"),
            "argument 1: expected list of int32, received string");
  EXPECT_EQ(conversion_error<std::vector<int>>(std::tuple(1, "a")),
            "argument 1: [1]: expected int32, received string");
  EXPECT_EQ(conversion_error<Point>(std::map<std::string, int>{{"x", 1}, {"y", 2}}),
            "argument 1: the field \"tags\" of Point is missing");
  EXPECT_EQ(conversion_error<Point>(std::map<std::string, std::string>{{"x", "a"}}),
            "argument 1: Point.x: expected float64, received string");
  EXPECT_EQ((conversion_error<std::pair<int, int>>(std::vector<int>{1})),
            "argument 1: expected (int32, int32), received 1 elements instead of 2");
  EXPECT_THAT(conversion_error<Colour>(300), HasSubstr("does not fit"));
  PackScratch scratch;
  EXPECT_EQ((error_of<int, std::string>(pack_args(scratch, "a"))),
            "expected 2 arguments (int32, string), received 1 (string)");
  EXPECT_EQ((error_of<int, int>(pack_args(scratch, 1, "a"))),
            "argument 2: expected int32, received string");
  EXPECT_EQ((error_of<int>(pack_args(scratch, 1, kw("x", 2)))),
            "keyword arguments (x) for a listener that takes none");
}

TEST(PayloadTest, MalformedInputIsAnErrorAndNothingElse) {
  for (const char* text : {"", "91", "92d6", "91d9ff61", "91dbffffffff61", "91ddffffffff",
                           "91dfffffffff00", "91c1", "91d6010000000", "91d40100", "91c70402000000",
                           "91c70802630000000000000000", "91ca00", "91c4", "91c70002", "c0"}) {
    SCOPED_TRACE(text);
    const Payload payload = native(text);
    EXPECT_THROW(unpack_any(payload.view()), PayloadError);
  }
  EXPECT_THROW(unpack_any(native("91d60100000000").view()), PayloadError) << "no such extra buffer";
  EXPECT_THROW(unpack_any(native("90", {}, true).view()), PayloadError) << "kwargs are missing";
  EXPECT_THROW(unpack_any(native("9105", {}, true).view()), PayloadError) << "kwargs are no map";
}

TEST(PayloadTest, NestingIsBounded) {
  std::string deep = "91";
  for (int i = 0; i < 100'000; ++i) deep += "91";
  deep += "00";
  EXPECT_THROW(unpack_any(native(deep).view()), PayloadError);
  std::string recursive = "91";
  for (int i = 0; i < 10'000; ++i) recursive += "82a576616c756500a86368696c6472656e91";
  EXPECT_THAT(error_of<Node>(native(recursive).view()), HasSubstr("nested deeper than 64"));
  // What is only skipped may be as deep as it likes.
  const Payload skipped = native("9183a178" + std::string("00a17900a474616773") + "90");
  EXPECT_EQ(error_of<Point>(skipped.view()), "no error");
}

TEST(PayloadTest, KeywordArgumentsTravelAsALastMap) {
  PackScratch scratch;
  const PayloadView& view = pack_args(scratch, 1, kw("x", 2), kw("name", "n"));
  EXPECT_TRUE(view.has_kwargs);
  const Args args = unpack_any(view);
  EXPECT_EQ(args.size(), 1u);
  EXPECT_EQ(args.kwarg("x"), Value(2));
  EXPECT_EQ(args.kwarg("name").as<std::string>(), "n");
  EXPECT_THROW(args.kwarg("y"), UsageError);
  PackScratch again;
  EXPECT_EQ(hex(pack_args(again, args).body), packed(1, kw("name", "n"), kw("x", 2)));
}

TEST(PayloadTest, ScratchesNest) {
  PackScratch outer;
  const PayloadView& first = pack_args(outer, "outer");
  {
    PackScratch inner;
    pack_args(inner, "inner");
  }
  EXPECT_EQ(std::get<0>(unpack_args<std::string>(first)), "outer");
}

TEST(ValueTest, ConvertsUnderTheSameRules) {
  EXPECT_EQ(Value(300).as<int>(), 300);
  EXPECT_THROW(Value(300).as<std::uint8_t>(), PayloadError);
  EXPECT_EQ(Value::from(Point{1, 2, {}}).as<Point>(), (Point{1, 2, {}}));
  EXPECT_EQ(Value(2), Value(2.0));
  EXPECT_EQ(Value(std::uint64_t{2}), Value(2));
  EXPECT_NE(Value(2), Value("2"));
  EXPECT_NE(Value(true), Value(1));
  EXPECT_EQ(Value(Buffer::copy_of("a"sv)), Value(Buffer::copy_of("a"sv)));
  EXPECT_NE(Value(std::numeric_limits<std::uint64_t>::max()), Value(0x1p64));
  EXPECT_THROW(Value(1).at("x"), UsageError);
  EXPECT_THROW(Value(Value::Array{}).at(std::size_t{0}), UsageError);
}

}  // namespace
}  // namespace divisi
