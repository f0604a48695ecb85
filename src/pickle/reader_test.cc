#include "pickle/reader.h"

#include "pickle/testing_pickles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divisi::pickle {
namespace {

using ::testing::HasSubstr;

std::string unhex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Value loaded(std::string_view bytes) {
  auto value = load(bytes);
  EXPECT_TRUE(value) << (value ? "" : value.error().message());
  return value ? *std::move(value) : Value();
}

std::string refusal(std::string_view bytes, const Limits& limits = {}) {
  const auto value = load(bytes, limits);
  return value ? "it was read" : value.error().message();
}

// A literal may hold bytes of value 0.
template <std::size_t N>
std::string_view raw(const char (&text)[N]) {
  return {text, N - 1};
}

TEST(PickleReaderTest, ReadsEveryKindInEveryProtocol) {
  for (const std::string_view digits : testing::kEveryKind) {
    const Value all = loaded(unhex(digits));
    ASSERT_EQ(all.kind, Kind::kDict);
    EXPECT_EQ(all.find("none")->kind, Kind::kNone);
    EXPECT_EQ(all.find("yes")->kind, Kind::kBool);
    EXPECT_TRUE(all.find("yes")->boolean);
    EXPECT_FALSE(all.find("no")->boolean);
    EXPECT_EQ(all.find("small")->integer, 7);
    EXPECT_EQ(all.find("word")->integer, 300);
    EXPECT_EQ(all.find("long")->integer, 70'000);
    EXPECT_EQ(all.find("minus")->integer, -5);
    EXPECT_EQ(all.find("big")->integer, std::int64_t{1} << 40);
    EXPECT_EQ(all.find("minus_big")->integer, -(std::int64_t{1} << 40));
    EXPECT_EQ(all.find("huge")->kind, Kind::kBigInt);
    EXPECT_EQ(all.find("huge")->text, "1180591620717411303424");
    EXPECT_EQ(all.find("minus_huge")->text, "-1180591620717411303424");
    EXPECT_EQ(all.find("half")->number, 0.5);
    EXPECT_EQ(all.find("text")->text, "grüße 😀 it's\n");
    EXPECT_EQ(all.find("bytes")->kind, Kind::kBytes);
    EXPECT_EQ(all.find("bytes")->text, std::string("\0\xff"
                                                   "ab",
                                                   4));
    EXPECT_EQ(all.find("empty")->kind, Kind::kBytes);
    EXPECT_EQ(all.find("list")->items.at(1).items.at(0).integer, 2);
    EXPECT_EQ(all.find("tuple")->kind, Kind::kTuple);
    EXPECT_EQ(all.find("one")->items.size(), 1U);
    EXPECT_EQ(all.find("two")->items.size(), 2U);
    EXPECT_EQ(all.find("four")->items.size(), 4U);
    EXPECT_EQ(all.find("set")->kind, Kind::kSet);
    EXPECT_EQ(all.find("frozen")->kind, Kind::kSet);
    EXPECT_EQ(all.find("inner")->members.size(), 3U);
    EXPECT_EQ(all.find("array")->text, "xy");
    EXPECT_EQ(all.find("shared")->items.at(0), all.find("shared")->items.at(1));
  }
}

TEST(PickleReaderTest, OrderedDictAndEasyDictAreDicts) {
  for (const std::string_view digits : testing::kDictClasses) {
    const auto document = to_json(loaded(unhex(digits)));
    ASSERT_TRUE(document) << document.error().message();
    EXPECT_EQ(json::print(*document), R"({"x":{"a":1,"b":{"c":[{"d":2}]}}})");
  }
}

TEST(PickleReaderTest, NumpyScalarsAreNumbers) {
  for (const std::string_view digits : testing::kNumpyScalars) {
    const Value list = loaded(unhex(digits));
    ASSERT_EQ(list.items.size(), 6U);
    EXPECT_EQ(list.items[0].number, 0.5);
    EXPECT_EQ(list.items[1].number, 2.5);
    EXPECT_EQ(list.items[2].integer, -3);
    EXPECT_EQ(list.items[3].integer, 200);
    EXPECT_TRUE(list.items[4].boolean);
    EXPECT_EQ(list.items[5].text, "9223372036854775808");
  }
}

TEST(PickleReaderTest, RefusesEveryOtherNameByName) {
  // os.system("id"), in text and as STACK_GLOBAL; builtins.eval; an object of a class; a function
  // as a value; the same hidden behind OrderedDict's items.
  EXPECT_THAT(refusal("cos\nsystem\n(S'id'\ntR."), HasSubstr("os.system"));
  EXPECT_THAT(refusal(raw("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.")),
              HasSubstr("posix.system"));
  EXPECT_THAT(refusal("c__builtin__\neval\n(S'1'\ntR."), HasSubstr("builtins.eval"));
  EXPECT_THAT(refusal("csubprocess\nPopen\n)\x81."), HasSubstr("subprocess.Popen"));
  EXPECT_THAT(refusal("(cos\nsystem\nS'id'\no."), HasSubstr("old-style"));
  EXPECT_THAT(refusal("(S'id'\nios\nsystem\n."), HasSubstr("old-style"));
  EXPECT_THAT(refusal("]cos\nsystem\na."), HasSubstr("os.system"));
  EXPECT_THAT(refusal("ccopy_reg\n_reconstructor\n(ctorch\nTensor\nc__builtin__\ndict\n}tR."),
              HasSubstr("torch.Tensor"));
  EXPECT_THAT(refusal(unhex(testing::kNumpyArray)),
              HasSubstr("numpy.core.multiarray._reconstruct"));
  EXPECT_THAT(refusal("}}b}S'x'\nb."), HasSubstr("state"));
}

TEST(PickleReaderTest, RefusesWhatIsOutsideOfIt) {
  EXPECT_THAT(refusal("P1\n."), HasSubstr("persistent id"));
  EXPECT_THAT(refusal("NQ."), HasSubstr("persistent id"));
  EXPECT_THAT(refusal("\x82\x01."), HasSubstr("extension code"));
  EXPECT_THAT(refusal("\x80\x05\x97."), HasSubstr("out of band"));
  EXPECT_THAT(refusal("\x80\x06N."), HasSubstr("protocol 6"));
}

TEST(PickleReaderTest, RefusesADamagedPickleWithItsByte) {
  EXPECT_EQ(refusal(""), "the pickle, byte 1: it ends without its last byte '.'");
  EXPECT_THAT(refusal("N"), HasSubstr("byte 2"));
  EXPECT_THAT(refusal("."), HasSubstr("not there"));
  EXPECT_THAT(refusal("N.N"), HasSubstr("after its end"));
  EXPECT_THAT(refusal("I12"), HasSubstr("cut off"));
  EXPECT_THAT(refusal(raw("X\xff\xff\xff\xff"
                          "abc.")),
              HasSubstr("cut off"));
  EXPECT_THAT(refusal("t."), HasSubstr("did not begin"));
  EXPECT_THAT(refusal("(Nd."), HasSubstr("no value"));
  EXPECT_THAT(refusal("}(Nu."), HasSubstr("no value"));
  EXPECT_THAT(refusal("NNa."), HasSubstr("no list"));
  EXPECT_THAT(refusal("h\x05."), HasSubstr("recalls value 5"));
  EXPECT_THAT(refusal("IN\n."), HasSubstr("digits"));
  EXPECT_THAT(refusal("Fx\n."), HasSubstr("float"));
  EXPECT_THAT(refusal("S'a\n."), HasSubstr("quotes"));
  EXPECT_THAT(refusal("S'\\q'\n."), HasSubstr("escape"));
  EXPECT_THAT(refusal("S'\\x4'\n."), HasSubstr("escape"));
  EXPECT_THAT(refusal("V\\ud800\n."), HasSubstr("0xd800"));
  EXPECT_THAT(refusal("U\x01\xff."), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal("\xff."), HasSubstr("0xff is no instruction"));
  for (const std::string_view digits : testing::kEveryKind) {
    const std::string whole = unhex(digits);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(load(whole.substr(0, size))) << size;
    }
  }
}

TEST(PickleReaderTest, RefusesWhatContainsItself) {
  EXPECT_THAT(refusal("]q\x01h\x01"
                      "a."),
              HasSubstr("contains itself"));
  EXPECT_THAT(refusal("}q\x01K\x01h\x01s."), HasSubstr("contains itself"));
}

TEST(PickleReaderTest, UnfoldsSharedValuesOnlyWithinItsLimits) {
  // Each list holds the one before twice: 2^40 items for 200 bytes.
  std::string bomb = "]q";
  bomb += '\0';
  for (char i = 1; i < 40; ++i) {
    bomb += "](h";
    bomb += static_cast<char>(i - 1);
    bomb += 'h';
    bomb += static_cast<char>(i - 1);
    bomb += "eq";
    bomb += i;
  }
  EXPECT_THAT(refusal(bomb + "."), HasSubstr("unfolds to more than"));

  // A text of 1000 bytes, encoded again and again.
  std::string copies = "V" + std::string(1000, 'x') + "\nq" + std::string(1, '\0');
  copies +=
      "0c_codecs\nencode\nq\x01"
      "0(h" +
      std::string(1, '\0') + "Vlatin1\ntq\x02" + "0(";
  for (int i = 0; i < 1000; ++i) copies += "h\x01h\x02R";
  EXPECT_THAT(refusal(copies + "t.", {.max_bytes = 10'000}), HasSubstr("bytes of text"));

  EXPECT_THAT(refusal(std::string(20, '2'), {.max_bytes = 10}),
              HasSubstr("20 bytes, more than 10"));
  EXPECT_THAT(refusal(std::string(20, ']') + ".", {.max_values = 10}), HasSubstr("more than 10"));
  EXPECT_THAT(refusal(std::string(20, '(') + "N.", {.max_values = 10}), HasSubstr("more than 10"));
  std::string deep(99, ']');
  EXPECT_TRUE(load("]" + deep + std::string(99, 'a') + "."));
  EXPECT_THAT(refusal("]]" + deep + std::string(100, 'a') + "."), HasSubstr("deeper than 100"));
}

TEST(PickleReaderTest, RefusesAnIntegerOfAnyLength) {
  std::string longer = std::string("\x8b\x01\x02", 3) + std::string(2, '\0');
  EXPECT_THAT(refusal(longer + std::string(513, '\x01') + "."), HasSubstr("513 bytes"));
  EXPECT_THAT(refusal("L" + std::string(2000, '9') + "L\n."), HasSubstr("2000 digits"));
  EXPECT_EQ(loaded(raw("\x8a\x00.")).integer, 0);
  EXPECT_EQ(loaded(raw("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.")).text,
            "18446744073709551615");
  EXPECT_EQ(loaded(raw("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff.")).integer, -1);
}

TEST(PickleReaderTest, EqualKeysAreOneMember) {
  // {1: "a", True: "b", 1.0: "c"}
  const Value dict =
      loaded(raw("\x80\x02}(K\x01U\x01"
                 "a\x88U\x01"
                 "bG\x3f\xf0\0\0\0\0\0\0U\x01"
                 "cu."));
  ASSERT_EQ(dict.members.size(), 1U);
  EXPECT_EQ(dict.members[0].first.kind, Kind::kInt);
  EXPECT_EQ(dict.members[0].second.text, "c");
  EXPECT_THAT(refusal("}(]Nu."), HasSubstr("list cannot be a key"));
}

TEST(PickleReaderTest, ToJsonNamesThePlaceThatDoesNotFit) {
  const auto message = [](std::string_view bytes) {
    const auto document = to_json(loaded(bytes));
    return document ? "it fits" : document.error().message();
  };
  EXPECT_EQ(message("}U\x01"
                    "a](NC\x01xes."),
            "a[1]: a value of type bytes has no place in a document");
  EXPECT_EQ(message("}K\x01Ns."),
            "the pickle: a dict with a key of type int; only text can be a key here");
  EXPECT_THAT(message("L123456789012345678901L\n."), HasSubstr("does not fit 64 bits"));
}

}  // namespace
}  // namespace divisi::pickle
