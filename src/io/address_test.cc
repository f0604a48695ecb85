#include "io/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::io {
namespace {

using ::testing::HasSubstr;

TEST(AddressTest, WhatUsersWriteIsUnderstoodAndWrittenOutInFull) {
  const struct {
    const char* text;
    const char* full;
  } cases[] = {
      {"tcp://10.0.0.1:50515", "tcp://10.0.0.1:50515"},
      {"10.0.0.1:50515", "tcp://10.0.0.1:50515"},
      {"localhost:0", "tcp://localhost:0"},
      {"tcp://[::1]:65535", "tcp://[::1]:65535"},
      {"[fe80::1]:1", "tcp://[fe80::1]:1"},
      {"ipc:///tmp/a.ipc", "ipc:///tmp/a.ipc"},
      {"ipc://@abstract", "ipc://@abstract"},
      {"ipc://relative/path", "ipc://relative/path"},
  };
  for (const auto& test : cases) {
    const auto address = Address::parse(test.text);
    ASSERT_TRUE(address.has_value()) << test.text;
    EXPECT_EQ(address->to_string(), test.full);
    EXPECT_EQ(*Address::parse(address->to_string()), *address);
  }
}

TEST(AddressTest, WhatIsNoAddressIsNamedWithTheReason) {
  const struct {
    std::string text;
    const char* reason;
  } cases[] = {
      {"", "no port"},
      {"host", "no port"},
      {":5", "no host"},
      {"host:", "not a port"},
      {"host:65536", "not a port"},
      {"host:-1", "not a port"},
      {"host:1x", "not a port"},
      {"host: 1", "not a port"},
      {"http://host:1", "unknown scheme"},
      {"::1:50515", "brackets"},
      {"[]:1", "host name"},
      {"[[z]]:6595", "host name"},
      {std::string(254, 'h') + ":1", "host name"},
      {"ipc://", "ipc path"},
      {"ipc://" + std::string(108, 'p'), "ipc path"},
  };
  for (const auto& test : cases) {
    const auto address = Address::parse(test.text);
    ASSERT_FALSE(address.has_value()) << test.text;
    EXPECT_EQ(address.error().code(), Code::kInvalid);
    EXPECT_THAT(address.error().message(), HasSubstr(test.reason)) << test.text;
    EXPECT_THAT(address.error().message(), HasSubstr("'" + test.text + "'"));
  }
}

TEST(AddressTest, TheLongestIpcPathFits) {
  EXPECT_TRUE(Address::parse("ipc://" + std::string(107, 'p')).has_value());
}

}  // namespace
}  // namespace divisi::io
