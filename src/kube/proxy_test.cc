#include "kube/proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace divisi::kube {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

// The proxy for a server, "" for none, or why there is an error.
std::string proxy_of(const Variables& variables, std::string_view server) {
  const auto proxy = proxy_from_environment(
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      *http::Url::parse(server));
  return proxy ? *proxy : proxy.error().message();
}

bool excepted(std::string_view server, std::string_view no_proxy) {
  return is_excepted(*http::Url::parse(server), no_proxy);
}

TEST(ProxyTest, TheSchemeOfTheServerChoosesTheVariable) {
  const Variables both{{"HTTP_PROXY", "http://plain:1"}, {"HTTPS_PROXY", "http://secure:2"}};
  EXPECT_EQ(proxy_of(both, "https://api.example.com"), "http://secure:2");
  EXPECT_EQ(proxy_of(both, "http://api.example.com"), "http://plain:1");
  EXPECT_EQ(proxy_of({{"HTTP_PROXY", "http://plain:1"}}, "https://api.example.com"), "");
  EXPECT_EQ(proxy_of({}, "https://api.example.com"), "");
}

TEST(ProxyTest, LowerCaseCountsWhereUpperCaseSaysNothing) {
  EXPECT_EQ(proxy_of({{"https_proxy", "http://low:1"}}, "https://a"), "http://low:1");
  EXPECT_EQ(proxy_of({{"https_proxy", "http://low:1"}, {"HTTPS_PROXY", ""}}, "https://a"),
            "http://low:1");
  EXPECT_EQ(
      proxy_of({{"https_proxy", "http://low:1"}, {"HTTPS_PROXY", "http://up:2"}}, "https://a"),
      "http://up:2");
  EXPECT_EQ(proxy_of({{"HTTPS_PROXY", "http://p:1"}, {"no_proxy", "a"}}, "https://a"), "");
}

TEST(ProxyTest, AProxyWithoutASchemeIsHttpAndOneThatCannotBeUsedIsNotShown) {
  EXPECT_EQ(proxy_of({{"HTTPS_PROXY", "proxy:3128"}}, "https://a"), "http://proxy:3128");
  for (const char* bad : {"socks5://s3cret@p:1", "https://s3cret@p:1", "http://s3cret@p:0"}) {
    EXPECT_THAT(proxy_of({{"HTTPS_PROXY", bad}}, "https://a"),
                AllOf(HasSubstr("HTTPS_PROXY"), Not(HasSubstr("s3cret"))));
  }
  EXPECT_EQ(proxy_of({{"HTTPS_PROXY", "socks5://p:1"}, {"NO_PROXY", "*"}}, "https://a"), "");
}

TEST(ProxyTest, ThisMachineNeedsNoProxy) {
  for (const char* server :
       {"https://localhost:6443", "https://127.0.0.1", "https://127.9.9.9", "https://[::1]:6443"}) {
    EXPECT_TRUE(excepted(server, "")) << server;
  }
  EXPECT_FALSE(excepted("https://128.0.0.1", ""));
  EXPECT_FALSE(excepted("https://localhost.example.com", ""));
}

TEST(ProxyTest, NamesStandForThemselvesAndWhatIsBelowThem) {
  EXPECT_TRUE(excepted("https://api.example.com", "other, Example.COM"));
  EXPECT_TRUE(excepted("https://EXAMPLE.com", "example.com"));
  EXPECT_FALSE(excepted("https://badexample.com", "example.com"));
  EXPECT_TRUE(excepted("https://api.example.com", ".example.com"));
  EXPECT_FALSE(excepted("https://example.com", ".example.com"));
  EXPECT_FALSE(excepted("https://example.com", "*.example.com"));
  EXPECT_TRUE(excepted("https://a.b.example.com", "*.example.com"));
  EXPECT_TRUE(excepted("https://anything", "x,*"));
  EXPECT_FALSE(excepted("https://api", " , ,."));
}

TEST(ProxyTest, PortsCountWhereTheyAreGiven) {
  EXPECT_TRUE(excepted("https://api:6443", "api:6443"));
  EXPECT_FALSE(excepted("https://api", "api:6443"));
  EXPECT_TRUE(excepted("https://api", "api:443"));
  EXPECT_FALSE(excepted("https://api", "api:https"));
  EXPECT_TRUE(excepted("https://[2001:db8::1]:6443", "[2001:db8::1]:6443"));
  EXPECT_FALSE(excepted("https://[2001:db8::1]:443", "[2001:db8::1]:6443"));
  EXPECT_TRUE(excepted("https://10.0.0.1:6443", "10.0.0.1:6443"));
}

TEST(ProxyTest, AddressesAreComparedAsAddressesAndNetworksByTheirPrefix) {
  EXPECT_TRUE(excepted("https://10.1.2.3", "10.0.0.0/8"));
  EXPECT_FALSE(excepted("https://11.1.2.3", "10.0.0.0/8"));
  EXPECT_TRUE(excepted("https://10.1.2.3", "10.1.2.2/31"));
  EXPECT_FALSE(excepted("https://10.1.2.4", "10.1.2.2/31"));
  EXPECT_FALSE(excepted("https://10.1.2.3", "::/0"));
  EXPECT_TRUE(excepted("https://[::ffff:10.1.2.3]", "10.1.2.3"));
  EXPECT_TRUE(excepted("https://[2001:db8::1]", "2001:DB8:0::1"));
  EXPECT_TRUE(excepted("https://[2001:db8::1]", "2001:db8::/32"));
  for (const char* none : {"10.0.0.0/33", "10.0.0.0/", "x/8", "/", "10.0.0.0/-1"}) {
    EXPECT_FALSE(excepted("https://10.0.0.0", none)) << none;
  }
}

}  // namespace
}  // namespace divisi::kube
