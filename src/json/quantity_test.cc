#include "json/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace divisi::json {
namespace {

using ::testing::HasSubstr;
using Format = Quantity::Format;

Quantity quantity(std::string_view text) {
  const auto parsed = Quantity::parse(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(Quantity());
}

struct Case {
  std::string text;
  std::string canonical;
  Format format = Format::kDecimalSi;
};

TEST(QuantityTest, PrintsTheCanonicalForm) {
  const Case cases[] = {
      {"0", "0"},
      {"0Ki", "0", Format::kBinarySi},
      {"-0", "0"},
      {"1", "1"},
      {"1.5", "1500m"},
      {"100m", "100m"},
      {"1000m", "1"},
      {"0.5", "500m"},
      {"1234567", "1234567"},
      {"12345000", "12345k"},
      {"50k", "50k"},
      {"5000G", "5T"},
      {"12E", "12E"},
      {"1000E", "1e21"},
      {"100.035k", "100035"},
      {"0.0005k", "500m"},
      {"1.", "1"},
      {"1.G", "1G"},
      {".001", "1m"},
      {"007", "7"},
      {"1.2345", "1234500u"},
      {"5n", "5n"},
      {"18446744073709551616", "18446744073709551616"},
      {"1e3", "1e3", Format::kDecimalExponent},
      {"1E6", "1e6", Format::kDecimalExponent},
      {"1.3E+6", "1300e3", Format::kDecimalExponent},
      {"1e14", "100e12", Format::kDecimalExponent},
      {"1e0", "1", Format::kDecimalExponent},
      {"0.5e-1", "50e-3", Format::kDecimalExponent},
      {"1Ki", "1Ki", Format::kBinarySi},
      {"1024Ki", "1Mi", Format::kBinarySi},
      {"1.5Gi", "1536Mi", Format::kBinarySi},
      {"0.5Ki", "512", Format::kBinarySi},
      {"1000Ki", "1000Ki", Format::kBinarySi},
      {"100.035Ki", "102435840m", Format::kBinarySi},
      {"0.05Gi", "53687091200m", Format::kBinarySi},
  };
  for (const Case& each : cases) {
    const Quantity parsed = quantity(each.text);
    EXPECT_EQ(parsed.to_string(), each.canonical) << each.text;
    EXPECT_EQ(parsed.format(), each.format) << each.text;
    EXPECT_EQ(quantity("+" + each.text.substr(each.text.starts_with('-') ? 1 : 0)), parsed);
    if (parsed.is_zero()) continue;
    EXPECT_EQ(quantity("-" + each.text).to_string(), "-" + each.canonical);
  }
}

TEST(QuantityTest, RoundsUpBelowNanoAndCapsBinaryAmounts) {
  const Case cases[] = {
      {"3.001n", "4n"},
      {"1.1E-9", "2e-9", Format::kDecimalExponent},
      {"0.0000000001", "1n"},
      {"0.00000012345", "124n"},
      {"1e-100000", "1e-9", Format::kDecimalExponent},
      {"0e100000", "0", Format::kDecimalExponent},
      {"0.000000000001Ki", "2n"},
      {"9Ei", "9223372036854775807", Format::kBinarySi},
      {"8Ei", "9223372036854775807", Format::kBinarySi},
      {"9223372036854775807Ki", "9223372036854775807", Format::kBinarySi},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(quantity(each.text).to_string(), each.canonical) << each.text;
    EXPECT_EQ(quantity(each.text).format(), each.format) << each.text;
  }
  EXPECT_EQ(quantity("-3.001n").to_string(), "-4n");
  EXPECT_LT(quantity("7.99Ei"), quantity("8Ei"));
}

TEST(QuantityTest, RefusesWhatIsNoQuantity) {
  for (const char* text :
       {"",      "-",    ".",   "Ki",     "1.1.M",   "1+1.0M", "0.1mi", "0.1am",
        "aoeu",  ".5i",  "1i",  "-3.01i", "-3.01e-", " 1",     "1 ",    "1e",
        "1e1.5", "1Kib", "1KI", "--1",    "1_000",   "0x10",   "1e+-3", "\xff"}) {
    const auto parsed = Quantity::parse(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("is no quantity")) << text;
  }
  EXPECT_THAT(Quantity::parse("1e29").error().message(), HasSubstr("10^29 or more"));
  EXPECT_THAT(Quantity::parse("1e100000").error().message(), HasSubstr("10^29 or more"));
  EXPECT_TRUE(Quantity::parse("99.9e27").has_value());
  EXPECT_THAT(Quantity::parse(std::string(1000, '1')).error().message(), HasSubstr("at most 256"));
}

TEST(QuantityTest, ComparesByAmount) {
  EXPECT_EQ(quantity("1"), quantity("1000m"));
  EXPECT_EQ(quantity("1Ki"), quantity("1.024k"));
  EXPECT_LT(quantity("50m"), quantity("100m"));
  EXPECT_GT(quantity("10000T"), quantity("100Gi"));
  EXPECT_LT(quantity("-1"), quantity("0"));
  EXPECT_EQ(quantity("-1n").sign(), -1);
}

TEST(QuantityTest, AddsAndKeepsTheFormatOfTheFirstThatIsNotZero) {
  EXPECT_EQ((quantity("100m") + quantity("1")).to_string(), "1100m");
  EXPECT_EQ((quantity("1Gi") + quantity("1024Mi")).to_string(), "2Gi");
  EXPECT_EQ((quantity("0") + quantity("1Gi")).to_string(), "1Gi");
  EXPECT_EQ((quantity("1Gi") - quantity("0")).to_string(), "1Gi");
  EXPECT_EQ((quantity("0") - quantity("1Gi")).to_string(), "-1Gi");
  EXPECT_EQ((quantity("1e3") - quantity("1k")).to_string(), "0");
  EXPECT_EQ((quantity("1Ki") - quantity("1")).to_string(), "1023");
  EXPECT_EQ(quantity("6e28") + quantity("6e28"), quantity("9e28") + quantity("8e28"));
  EXPECT_EQ(-quantity("6e28") - quantity("6e28"), -(quantity("9e28") + quantity("8e28")));
  // More than 128 bits hold.
  EXPECT_EQ(quantity("9e28") + quantity("9e28"), quantity("6e28") + quantity("6e28"));
  EXPECT_EQ(-quantity("9e28") - quantity("9e28"), -quantity("6e28") - quantity("6e28"));
  EXPECT_EQ((quantity("4Ei") + quantity("4Ei") + quantity("4Ei")).to_string(), "12Ei");
}

TEST(QuantityTest, GivesWholeUnitsRoundedAwayFromZero) {
  EXPECT_EQ(quantity("1.1").value(), 2);
  EXPECT_EQ(quantity("-1.1").value(), -2);
  EXPECT_EQ(quantity("1Gi").value(), 1 << 30);
  EXPECT_EQ(quantity("1e25").value(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(quantity("-1e25").milli_value(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(quantity("1u").milli_value(), 1);
  EXPECT_EQ(quantity("1.5").milli_value(), 1500);
  EXPECT_DOUBLE_EQ(quantity("250m").to_double(), 0.25);
  EXPECT_EQ(Quantity(1536, Format::kBinarySi).to_string(), "1536");
  EXPECT_EQ(Quantity(2048, Format::kBinarySi).to_string(), "2Ki");
  EXPECT_EQ(Quantity::from_milli(1500).to_string(), "1500m");
}

}  // namespace
}  // namespace divisi::json
