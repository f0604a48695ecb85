// The same over TLS, and what goes wrong with certificates as a caller sees it.
#include "http/testing/loop_fixture.h"
#include "io/testing/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::http {
namespace {

using namespace std::chrono_literals;
using io::TlsContext;
using ::testing::HasSubstr;

class HttpsTest : public testing::LoopFixture {
 protected:
  ServerOptions secure(const std::string& client_ca = {}) {
    return {.tls = *TlsContext::server(
                {.identity = ca_.issue({.name = "server", .hosts = {"localhost", "127.0.0.1"}}),
                 .client_ca_pem = client_ca})};
  }
  void use_trust(const io::TlsClientOptions& options, std::string server_name = {}) {
    use_client({.server = url_,
                .tls = [options] { return TlsContext::client(options); },
                .server_name = std::move(server_name)});
  }

  const io::testing::Authority ca_{"Test CA"};
};

void answer_ok(const std::shared_ptr<ServerCall>& call) {
  call->respond({.status = 200, .body = call->request().body});
}

TEST_F(HttpsTest, LargeBodiesGoBothWays) {
  serve(answer_ok, secure());
  use_trust({.ca_pem = ca_.pem()});
  const std::string large(5 << 20, 'x');
  for (int i = 0; i < 2; ++i) {
    const auto answer = fetch({.method = "POST", .target = "/", .body = large});
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    EXPECT_TRUE(answer->body == large);
  }
}

TEST_F(HttpsTest, AWrongNameIsToldWithTheUrl) {
  serve(answer_ok, secure());
  use_trust({.ca_pem = ca_.pem()}, "other.example");
  const auto answer = fetch({.target = "/version"});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kUnauthorized);
  EXPECT_EQ(answer.error().message(),
            "GET " + url_.origin() +
                "/version: TLS handshake: the certificate of CN = server is not for other.example; "
                "it is for DNS:localhost, IP Address:127.0.0.1");
}

TEST_F(HttpsTest, AClientWithoutACertificateHearsThatItIsRefused) {
  const io::testing::Authority users("User CA");
  serve(answer_ok, secure(users.pem()));
  use_trust({.ca_pem = ca_.pem()});
  const auto refused = fetch({.target = "/"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("the server refused our certificate"));
  use_trust({.ca_pem = ca_.pem(), .identity = users.issue({.name = "user"})});
  EXPECT_TRUE(fetch({.target = "/"}).has_value());
}

TEST_F(HttpsTest, NewCertificatesAreForNewConnections) {
  serve(answer_ok, secure());
  use_trust({.ca_pem = ca_.pem()});
  ASSERT_TRUE(fetch({.target = "/"}).has_value());
  const io::testing::Authority next("Next CA");
  on_loop([&] {
    server_->set_tls(
        *TlsContext::server({.identity = next.issue({.name = "server", .hosts = {"127.0.0.1"}})}));
  });
  EXPECT_TRUE(fetch({.target = "/"}).has_value()) << "the kept connection goes on";
  on_loop([&] { client_->close_idle(); });
  const auto refused = fetch({.target = "/"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("signed by CN = Next CA"));
}

TEST_F(HttpsTest, PlainHttpToATlsPortAndTheOtherWayRoundAreTold) {
  serve(answer_ok, secure());
  Url plain = url_;
  plain.tls = false;
  use_client({.server = plain});
  const auto answer = fetch({.target = "/"});
  ASSERT_FALSE(answer.has_value());
  EXPECT_THAT(answer.error().message(), HasSubstr("GET " + plain.origin() + "/: "));

  serve(answer_ok);
  Url tls = url_;
  tls.tls = true;
  use_client({.server = tls, .tls = [this] { return TlsContext::client({.ca_pem = ca_.pem()}); }});
  const auto other = fetch({.target = "/"});
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message(), HasSubstr("does not speak TLS"));
}

TEST_F(HttpsTest, AContextThatCannotBeMadeFailsTheCall) {
  serve(answer_ok, secure());
  use_trust({.ca_pem = "nonsense"});
  const auto answer = fetch({.target = "/"});
  ASSERT_FALSE(answer.has_value());
  EXPECT_THAT(answer.error().message(), HasSubstr("the CA of the server has no certificate"));
}

}  // namespace
}  // namespace divisi::http
