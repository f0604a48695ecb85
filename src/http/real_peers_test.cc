// Our server with curl, our client with Python's http.server: others must understand us, too.
#include "http/testing/loop_fixture.h"
#include "io/process.h"
#include "io/testing/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace divisi::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RealPeersTest : public testing::LoopFixture {
 protected:
  RealPeersTest() {
    char name[] = "/tmp/divisi_http_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~RealPeersTest() override {
    on_loop([&] {
      calls_.clear();
      client_.reset();
    });
    std::filesystem::remove_all(folder_);
  }

  std::string file(const std::string& name, std::string_view text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  // What curl prints: both streams, one after the other.
  std::string curl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--silent", "--show-error", "--max-time", "60"});
    auto child = io::Process::spawn({.program = "curl",
                                     .arguments = std::move(arguments),
                                     .environment = {{"no_proxy", "*"}},
                                     .standard_output = io::Stdio::kPipe,
                                     .standard_error = io::Stdio::kPipe});
    if (!child) throw std::runtime_error(child.error().message());
    auto output = io::read_all(child->output().get());
    auto errors = io::read_all(child->error().get());
    static_cast<void>(child->wait());
    return *output + *errors;
  }

  // A server in Python on a port of its own; with certificates it speaks TLS and demands them.
  io::Process python_server(const std::string& identity_file, const std::string& ca_file) {
    static constexpr std::string_view kScript = R"(
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        if self.path == "/pieces":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(1000):
                self.wfile.write(b"5\r\nhello\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/until-the-end":
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"x" * 100000)
        else:
            self.send_header("Content-Length", str(len(self.path)))
            self.end_headers()
            self.wfile.write(self.path.encode())
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 2:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=sys.argv[2])
    context.load_cert_chain(sys.argv[1])
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
)";
    std::vector<std::string> arguments{"-c", std::string(kScript)};
    if (!identity_file.empty()) arguments.insert(arguments.end(), {identity_file, ca_file});
    auto child = io::Process::spawn({.program = "python3",
                                     .arguments = std::move(arguments),
                                     .standard_output = io::Stdio::kPipe});
    if (!child) throw std::runtime_error(child.error().message());
    std::string port;
    for (char c = 0; ::read(child->output().get(), &c, 1) == 1 && c != '\n';) port += c;
    url_ = *Url::parse(
        fmt::format("{}://127.0.0.1:{}", identity_file.empty() ? "http" : "https", port));
    return *std::move(child);
  }

  void fetch_everything() {
    for (int i = 0; i < 3; ++i) {
      const auto plain = fetch({.target = "/a?b"});
      ASSERT_TRUE(plain.has_value()) << plain.error().message();
      EXPECT_EQ(plain->body, "/a?b");
    }
    const std::string large(3 << 20, 'x');
    const auto posted = fetch({.method = "POST", .target = "/", .body = large});
    ASSERT_TRUE(posted.has_value()) << posted.error().message();
    EXPECT_EQ(posted->status, 201);
    EXPECT_TRUE(posted->body == large);
    const auto pieces = fetch({.target = "/pieces"});
    ASSERT_TRUE(pieces.has_value()) << pieces.error().message();
    EXPECT_EQ(pieces->body.size(), 5000u);
    const auto to_the_end = fetch({.target = "/until-the-end"});
    // Python's server leaves a TLS connection without a goodbye: that could be a cut.
    EXPECT_EQ(to_the_end.has_value(), !url_.tls);
  }

  const io::testing::Authority ca_{"Test CA"};
  std::string folder_;
};

void echo(const std::shared_ptr<ServerCall>& call) {
  if (call->request().target != "/pieces") {
    return call->respond({.status = 200, .body = call->request().method + call->request().body});
  }
  call->start({.status = 200});
  for (int i = 0; i < 3; ++i) call->write("piece\n");
  call->finish();
}

TEST_F(RealPeersTest, CurlUnderstandsOurServer) {
  serve(echo);
  const std::string root = url_.origin();
  EXPECT_EQ(curl({root + "/a", root + "/b"}), "GETGET");
  EXPECT_EQ(curl({root + "/pieces"}), "piece\npiece\npiece\n");
  EXPECT_EQ(curl({"--data", "hello", root}), "POSThello");
  EXPECT_EQ(curl({"--data", "hello", "--header", "Transfer-Encoding: chunked", root}), "POSThello");
  EXPECT_EQ(curl({"--http1.0", root + "/pieces"}), "piece\npiece\npiece\n");
  EXPECT_THAT(curl({"--head", root}),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 4")));
  const std::string large(5 << 20, 'x');
  const auto path = file("large", large);  // curl waits for 100 Continue before it sends this
  EXPECT_EQ(curl({"--data-binary", "@" + path, root}).size(), large.size() + 4);
  // One connection for both.
  EXPECT_THAT(curl({"--verbose", root + "/a", root + "/b"}),
              HasSubstr("Re-using existing connection"));
}

TEST_F(RealPeersTest, CurlSpeaksTlsWithOurServer) {
  serve(echo, {.tls = *io::TlsContext::server(
                   {.identity = ca_.issue({.name = "server", .hosts = {"127.0.0.1"}}),
                    .client_ca_pem = ca_.pem()})});
  const auto user = ca_.issue({.name = "user"});
  const auto ca = file("ca.pem", ca_.pem());
  const auto both = file("user.pem", user.certificate_pem + user.key_pem);
  EXPECT_EQ(curl({"--cacert", ca, "--cert", both, "--data", "hello", url_.origin()}), "POSThello");
  EXPECT_EQ(curl({"--cacert", ca, "--cert", both, "--tls-max", "1.2", url_.origin()}), "GET");
  EXPECT_THAT(curl({"--cacert", ca, url_.origin()}), HasSubstr("curl: ("));
  EXPECT_THAT(curl({"--cacert", ca, "--cert", both, "--tls-max", "1.1", url_.origin()}),
              HasSubstr("curl: ("));
}

TEST_F(RealPeersTest, OurClientUnderstandsPython) {
  const auto server = python_server({}, {});
  fetch_everything();
}

TEST_F(RealPeersTest, OurClientSpeaksTlsWithPython) {
  const auto identity = ca_.issue({.name = "python", .hosts = {"127.0.0.1"}});
  const auto server = python_server(file("server.pem", identity.certificate_pem + identity.key_pem),
                                    file("ca.pem", ca_.pem()));
  const auto user = ca_.issue({.name = "user"});
  use_client({.server = url_, .tls = [&] {
                return io::TlsContext::client({.ca_pem = ca_.pem(), .identity = user});
              }});
  fetch_everything();
  use_client(
      {.server = url_, .tls = [&] { return io::TlsContext::client({.ca_pem = ca_.pem()}); }});
  const auto refused = fetch({.target = "/"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr(url_.origin() + "/: "));
}

}  // namespace
}  // namespace divisi::http
