// Through an HTTP proxy: absolute targets for http, CONNECT for https.
#include "http/testing/loop_fixture.h"
#include "http/testing/raw_peer.h"
#include "io/testing/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace divisi::http {
namespace {

using testing::get;
using ::testing::HasSubstr;
using testing::RawPeer;
using testing::ScriptedServer;
using ::testing::StartsWith;

class ProxyTest : public testing::LoopFixture {
 protected:
  ~ProxyTest() override {
    on_loop([&] {
      calls_.clear();
      client_.reset();
    });
  }
  Url proxy_url(const ScriptedServer& proxy, const std::string& user = {}) {
    return *Url::parse(fmt::format("http://{}127.0.0.1:{}", user, proxy.port()));
  }
};

TEST_F(ProxyTest, PlainRequestsNameTheWholeUrlAndTheCredentials) {
  std::promise<std::string> seen;
  ScriptedServer proxy([&](RawPeer& peer, int) {
    seen.set_value(peer.read_until("\r\n\r\n"));
    peer.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  });
  use_client({.server = *Url::parse("http://far.example:8080/base"),
              .proxy = proxy_url(proxy, "me:secret@")});
  const auto answer = fetch({.target = "/x?y"});
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  const auto head = get(seen.get_future());
  EXPECT_THAT(head, StartsWith("GET http://far.example:8080/base/x?y HTTP/1.1\r\n"));
  EXPECT_THAT(head, HasSubstr("Host: far.example:8080\r\n"));
  EXPECT_THAT(head, HasSubstr("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"));
}

// Copies what comes from one to the other.
void relay(RawPeer& from, RawPeer& to) {
  for (auto bytes = from.read_some(); !bytes.empty(); bytes = from.read_some()) to.write(bytes);
  to.shutdown_write();
}

TEST_F(ProxyTest, HttpsGoesThroughAsItIs) {
  const io::testing::Authority ca("Test CA");
  serve([](const auto& call) { call->respond({.status = 200, .body = "secret words"}); },
        {.tls = *io::TlsContext::server(
             {.identity = ca.issue({.name = "s", .hosts = {"far.example"}})})});
  std::promise<std::string> seen;
  ScriptedServer proxy([&](RawPeer& peer, int) {
    seen.set_value(peer.read_until("\r\n\r\n"));
    peer.write("HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n");
    RawPeer far = RawPeer::connect(url_.port);
    std::thread back([&] { relay(far, peer); });
    relay(peer, far);
    back.join();
  });
  use_client({.server = *Url::parse("https://far.example"),
              .tls = [&] { return io::TlsContext::client({.ca_pem = ca.pem()}); },
              .proxy = proxy_url(proxy, "me:secret@")});
  const auto answer = fetch({.target = "/"});
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_EQ(answer->body, "secret words");
  const auto head = get(seen.get_future());
  EXPECT_EQ(head,
            "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n"
            "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n");
  on_loop([&] { client_.reset(); });
}

TEST_F(ProxyTest, ARefusalNamesTheProxyItsStatusAndNoPassword) {
  ScriptedServer proxy([&](RawPeer& peer, int) {
    peer.read_until("\r\n\r\n");
    peer.write("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
  });
  use_client({.server = *Url::parse("https://far.example"),
              .tls = [] { return io::TlsContext::client({}); },
              .proxy = proxy_url(proxy, "me:secret@")});
  const auto answer = fetch({.target = "/x"});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kUnauthorized);
  EXPECT_EQ(
      answer.error().message(),
      fmt::format("GET https://far.example/x: the proxy http://127.0.0.1:{} answered 407 Proxy "
                  "Authentication Required to CONNECT far.example:443",
                  proxy.port()));
}

TEST_F(ProxyTest, AProxyThatIsNoneOrNotThereIsNamed) {
  Url gone;
  {
    ScriptedServer proxy([&](RawPeer& peer, int) {
      peer.read_until("\r\n\r\n");
      peer.write("<html>");
    });
    gone = proxy_url(proxy);
    use_client({.server = *Url::parse("https://far.example"),
                .tls = [] { return io::TlsContext::client({}); },
                .proxy = gone});
    const auto answer = fetch({.target = "/x"});
    EXPECT_THAT(answer.error().message(),
                HasSubstr("the proxy " + gone.origin() + ": the answer is not HTTP/1"));
  }
  const auto answer = fetch({.target = "/x"});
  EXPECT_THAT(answer.error().message(), HasSubstr("the proxy " + gone.origin() + ": cannot reach"));
}

}  // namespace
}  // namespace divisi::http
