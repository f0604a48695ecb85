// TLS over the real loop: who is let in, who is not and why, and how a stream ends.
#include "io/tls.h"

#include "io/testing/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <string>

namespace divisi::io {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::Authority;
using ::testing::HasSubstr;

using Secured = Result<std::shared_ptr<Stream>>;

template <class T>
T get(std::future<T> future) {
  if (future.wait_for(60s) != std::future_status::ready) {
    throw std::runtime_error("nothing came before the deadline");
  }
  return future.get();
}

class TlsTest : public ::testing::Test {
 protected:
  ~TlsTest() override {
    reactor_->run_on_loop([&] {
      for (const auto& stream : streams_) stream->close();
      handshakes_.clear();
    });
  }

  // Two ends of a plain connection: the dialling one first.
  std::pair<std::shared_ptr<Stream>, std::shared_ptr<Stream>> connect() {
    std::promise<std::shared_ptr<Stream>> accepted;
    std::promise<Secured> dialled;
    const auto listener = reactor_->listen(
        *Address::parse("tcp://127.0.0.1:0"),
        [&](std::shared_ptr<Stream> stream) { accepted.set_value(std::move(stream)); });
    std::unique_ptr<Timer> handle;
    reactor_->run_on_loop([&] {
      handle = reactor_->dial((*listener)->address(), 10s,
                              [&](Secured stream) { dialled.set_value(std::move(stream)); });
    });
    auto near = *get(dialled.get_future());
    auto far = get(accepted.get_future());
    reactor_->run_on_loop([&] { handle.reset(); });
    streams_.push_back(near);
    streams_.push_back(far);
    return {near, far};
  }

  std::future<Secured> secure(std::shared_ptr<const TlsContext> context,
                              std::shared_ptr<Stream> plain, const std::string& name = {},
                              Duration timeout = 30s) {
    auto done = std::make_shared<std::promise<Secured>>();
    reactor_->run_on_loop([&] {
      handshakes_.push_back(start_tls(*reactor_, std::move(context), std::move(plain), name,
                                      timeout, [done, this](Secured stream) {
                                        if (stream) streams_.push_back(*stream);
                                        done->set_value(std::move(stream));
                                      }));
    });
    return done->get_future();
  }

  struct Outcome {
    Secured client, server;
  };
  Outcome shake_hands(const TlsClientOptions& client, const TlsServerOptions& server,
                      const std::string& name) {
    const auto [near, far] = connect();
    auto server_side = secure(*TlsContext::server(server), far);
    auto client_side = secure(*TlsContext::client(client), near, name);
    return {get(std::move(client_side)), get(std::move(server_side))};
  }

  TlsServerOptions server(const testing::CertificateSpec& spec) {
    return {.identity = ca_.issue(spec)};
  }

  // Reads until something other than "not yet": what came, and the last result.
  std::pair<std::string, ssize_t> read_to_end(const std::shared_ptr<Stream>& stream) {
    auto done = std::make_shared<std::promise<std::pair<std::string, ssize_t>>>();
    reactor_->run_on_loop([&] {
      auto all = std::make_shared<std::string>();
      stream->start_reading([=] {
        char bytes[100];
        const iovec part{bytes, sizeof bytes};
        const ssize_t n = stream->read({&part, 1});
        if (n == -EAGAIN) return true;
        if (n > 0) return all->append(bytes, static_cast<std::size_t>(n)), true;
        done->set_value({*all, n});
        return false;
      });
    });
    return get(done->get_future());
  }

  void write(const std::shared_ptr<Stream>& stream, std::string text) {
    reactor_->run_on_loop([&] {
      const iovec part{text.data(), text.size()};
      EXPECT_EQ(stream->write({&part, 1}), static_cast<ssize_t>(text.size()));
    });
  }

  const std::unique_ptr<Reactor> reactor_ = make_reactor();
  const Authority ca_{"Test CA"};
  std::vector<std::unique_ptr<Timer>> handshakes_;
  std::vector<std::shared_ptr<Stream>> streams_;
};

TEST_F(TlsTest, BytesTravelEncryptedAndTheEndIsAnnounced) {
  auto [client, server] =
      shake_hands({.ca_pem = ca_.pem()},
                  {.identity = ca_.issue({.name = "s", .hosts = {"example.org"}})}, "example.org");
  ASSERT_TRUE(client.has_value()) << client.error().message();
  ASSERT_TRUE(server.has_value()) << server.error().message();
  const std::string text = std::string(1000, 'a') + "the end";
  write(*client, text);
  reactor_->run_on_loop([&] { (*client)->shutdown_write(); });
  EXPECT_EQ(read_to_end(*server), std::pair(text, ssize_t{0})) << "read in pieces of 100";
  write(*server, "and back");
  reactor_->run_on_loop([&] { (*server)->close(); });
  EXPECT_EQ(read_to_end(*client), std::pair(std::string("and back"), ssize_t{0}));
}

TEST_F(TlsTest, AnEndThatNobodyAnnouncedIsAnError) {
  const auto [near, far] = connect();
  auto server_side = secure(*TlsContext::server(server({.name = "s", .hosts = {"a"}})), far);
  auto client = get(secure(*TlsContext::client({.ca_pem = ca_.pem()}), near, "a"));
  auto server = get(std::move(server_side));
  write(*server, "half");
  reactor_->run_on_loop([plain = far] { plain->shutdown_write(); });  // below the encryption
  EXPECT_EQ(read_to_end(*client), std::pair(std::string("half"), ssize_t{-ECONNRESET}));
}

TEST_F(TlsTest, MegabytesArriveWholeThoughTheSocketIsFullInBetween) {
  auto [client, server] = shake_hands({.ca_pem = ca_.pem()},
                                      {.identity = ca_.issue({.name = "s", .hosts = {"a"}})}, "a");
  constexpr std::size_t kSize = 20 << 20;
  const auto stream = *client;
  auto sent = std::make_shared<std::size_t>(0);
  std::string text(kSize, 'x');
  std::function<void()> go_on = [&, stream, sent] {
    while (*sent < kSize) {
      const iovec part{text.data() + *sent, kSize - *sent};
      const ssize_t n = stream->write({&part, 1});
      if (n == -EAGAIN) return stream->wait_writable(go_on);
      ASSERT_GT(n, 0);
      *sent += static_cast<std::size_t>(n);
    }
    stream->shutdown_write();
  };
  reactor_->run_on_loop(go_on);
  const auto [received, last] = read_to_end(*server);
  EXPECT_EQ(received.size(), kSize);
  EXPECT_EQ(last, 0);
}

TEST_F(TlsTest, NamesAndAddressesAreVerified) {
  const auto options = server({.name = "s", .hosts = {"example.org", "127.0.0.1", "::1"}});
  for (const char* name : {"example.org", "127.0.0.1", "::1"}) {
    const auto both = shake_hands({.ca_pem = ca_.pem()}, options, name);
    EXPECT_TRUE(both.client.has_value()) << name << ": " << both.client.error().message();
  }
  for (const char* name : {"other.org", "127.0.0.2", "sub.example.org"}) {
    const auto both = shake_hands({.ca_pem = ca_.pem()}, options, name);
    ASSERT_FALSE(both.client.has_value()) << name;
    EXPECT_EQ(both.client.error().code(), Code::kUnauthorized);
    EXPECT_THAT(both.client.error().message(),
                AllOf(HasSubstr(std::string("is not for ") + name), HasSubstr("DNS:example.org")));
    EXPECT_FALSE(both.server.has_value());
  }
}

TEST_F(TlsTest, AStrangersCertificateIsRefusedWithTheNameOfItsSigner) {
  const Authority stranger("Stranger CA");
  const auto both =
      shake_hands({.ca_pem = stranger.pem()}, server({.name = "s", .hosts = {"a"}}), "a");
  ASSERT_FALSE(both.client.has_value());
  EXPECT_EQ(
      both.client.error().message(),
      "TLS handshake: the certificate of CN = s is signed by CN = Test CA, which is not trusted");
  EXPECT_THAT(both.server.error().message(), HasSubstr("refused us"));
}

TEST_F(TlsTest, AnExpiredCertificateIsRefusedWithItsDate) {
  const auto both = shake_hands({.ca_pem = ca_.pem()},
                                server({.name = "old", .hosts = {"a"}, .valid_until = -60s}), "a");
  ASSERT_FALSE(both.client.has_value());
  EXPECT_THAT(both.client.error().message(), HasSubstr("the certificate of CN = old expired on "));
  const auto early = shake_hands({.ca_pem = ca_.pem()},
                                 server({.name = "new", .hosts = {"a"}, .valid_from = 600s}), "a");
  ASSERT_FALSE(early.client.has_value());
  EXPECT_THAT(early.client.error().message(), HasSubstr("is valid from"));
}

TEST_F(TlsTest, NothingIsCheckedWhenTheUserSaysSo) {
  const auto both = shake_hands({.verify = false}, server({.name = "s", .valid_until = -60s}), "a");
  EXPECT_TRUE(both.client.has_value());
}

TEST_F(TlsTest, AServerCanDemandCertificatesOfItsClients) {
  const Authority users("User CA");
  auto options = server({.name = "s", .hosts = {"a"}});
  options.client_ca_pem = users.pem();
  const auto known =
      shake_hands({.ca_pem = ca_.pem(), .identity = users.issue({.name = "user"})}, options, "a");
  EXPECT_TRUE(known.client.has_value());
  EXPECT_TRUE(known.server.has_value()) << known.server.error().message();

  // In TLS 1.3 a client is done before the server has looked: it hears of it when it reads.
  for (const bool anonymous : {true, false}) {
    TlsClientOptions client{.ca_pem = ca_.pem()};
    if (!anonymous) client.identity = ca_.issue({.name = "impostor"});
    const auto refused = shake_hands(client, options, "a");
    ASSERT_FALSE(refused.server.has_value());
    ASSERT_TRUE(refused.client.has_value());
    EXPECT_EQ(read_to_end(*refused.client).second, -EACCES);
  }
}

TEST_F(TlsTest, AContextOfDamagedOrForeignPartsIsRefused) {
  const auto good = ca_.issue({.name = "s"});
  const auto other = ca_.issue({.name = "t"});
  const auto message = [](const auto& context) {
    return context.has_value() ? std::string("accepted") : context.error().message();
  };
  EXPECT_EQ(message(TlsContext::server({.identity = {good.certificate_pem, other.key_pem}})),
            "the key of the server does not belong to its certificate");
  EXPECT_THAT(message(TlsContext::server({.identity = {"", good.key_pem}})),
              HasSubstr("the certificate of the server has no certificate"));
  EXPECT_THAT(message(TlsContext::server({.identity = {good.certificate_pem, "nonsense"}})),
              HasSubstr("no private key"));
  EXPECT_THAT(message(TlsContext::client({.ca_pem = "nonsense"})),
              HasSubstr("the CA of the server has no certificate"));
  std::string damaged = ca_.pem();
  damaged[damaged.size() / 2] = '!';
  EXPECT_THAT(message(TlsContext::client({.ca_pem = damaged})), HasSubstr("is damaged"));
}

TEST_F(TlsTest, APeerThatSpeaksSomethingElseOrLeavesEndsTheHandshake) {
  const auto client = *TlsContext::client({.ca_pem = ca_.pem()});
  {
    const auto [near, far] = connect();
    write(far, "HTTP/1.1 400 Bad Request\r\n\r\n");
    const auto result = get(secure(client, near, "a"));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().message(), "TLS handshake: the other side does not speak TLS");
  }
  {
    const auto [near, far] = connect();
    auto result = secure(client, near, "a");
    reactor_->run_on_loop([plain = far] { plain->shutdown_write(); });
    EXPECT_EQ(get(std::move(result)).error().message(),
              "TLS handshake: the other side closed the connection");
  }
  {
    const auto [near, far] = connect();
    const auto result = get(secure(client, near, "a", 50ms));
    EXPECT_EQ(result.error().code(), Code::kTimeout);
  }
}

TEST_F(TlsTest, AHandshakeThatIsGivenUpIsNotHeardOf) {
  const auto [near, far] = connect();
  auto never = secure(*TlsContext::client({.ca_pem = ca_.pem()}), near, "a");
  reactor_->run_on_loop([&] { handshakes_.clear(); });
  EXPECT_THROW(get(std::move(never)), std::future_error);
}

}  // namespace
}  // namespace divisi::io
