// The program itself: what it says to mistakes, and exec with an input that comes little by little.
#include "http/server.h"
#include "http/websocket.h"
#include "io/process.h"
#include "io/reactor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace divisi::apps {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

io::Process start(std::vector<std::string> arguments) {
  auto started = io::Process::spawn({.program = DIVISI_PROGRAM,
                                     .arguments = std::move(arguments),
                                     .standard_input = io::Stdio::kPipe,
                                     .standard_output = io::Stdio::kPipe,
                                     .standard_error = io::Stdio::kPipe});
  if (!started) throw std::runtime_error(started.error().message());
  return *std::move(started);
}

// Reads until the text is there, or nothing more comes.
std::string read_until(int descriptor, std::string_view text) {
  std::string read;
  while (read.find(text) == std::string::npos) {
    pollfd ready{descriptor, POLLIN, 0};
    if (::poll(&ready, 1, 60'000) <= 0) return read + " (and then nothing for a minute)";
    std::string piece(4096, '\0');
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got <= 0) break;
    read.append(piece, 0, static_cast<std::size_t>(got));
  }
  return read;
}

std::string all_of(int descriptor) {
  return read_until(descriptor, "\xff never printed");
}

TEST(DivisiTest, AMistakeOfUsageIsOneLineAndExitCodeTwo) {
  const std::vector<std::vector<std::string>> mistakes = {{},
                                                          {"nothing"},
                                                          {"kube"},
                                                          {"kube", "get"},
                                                          {"kube", "get", "pods", "--what"},
                                                          {"kube", "logs", "a", "--tail", "many"}};
  for (const auto& arguments : mistakes) {
    io::Process divisi = start(arguments);
    const std::string said = all_of(divisi.error().get());
    EXPECT_THAT(said, AllOf(StartsWith("divisi: "), EndsWith("; divisi --help tells more\n")));
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
    EXPECT_EQ(all_of(divisi.output().get()), "");
    EXPECT_EQ(divisi.wait()->code, 2) << said;
  }
}

TEST(DivisiTest, LaunchIsAnotherNameOfRun) {
  io::Process divisi = start({"launch", "--gpus", "1"});
  const std::string said = all_of(divisi.error().get());
  EXPECT_THAT(said, AllOf(StartsWith("divisi run: "), HasSubstr("--workers N is missing")));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_EQ(divisi.wait()->code, 2);
}

TEST(DivisiTest, HelpIsNoMistake) {
  io::Process divisi = start({"kube", "--help"});
  EXPECT_THAT(all_of(divisi.output().get()), HasSubstr("divisi kube get pods -A"));
  EXPECT_EQ(divisi.wait()->code, 0);
}

// An API server whose every command is cat.
class CatServer {
 public:
  CatServer() {
    reactor_->run_on_loop([this] {
      auto listening =
          http::Server::listen(*reactor_, {.address = *io::Address::parse("tcp://127.0.0.1:0")},
                               [this](const auto& call) { serve(call); });
      if (!listening) throw std::runtime_error(listening.error().message());
      server_ = *std::move(listening);
    });
    std::string name = (std::filesystem::temp_directory_path() / "divisi_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    std::ofstream(kubeconfig()) << fmt::format(
        "current-context: c\nclusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{}'}}}}]\n"
        "contexts: [{{name: c, context: {{cluster: k}}}}]\n",
        server_->address().port);
  }
  ~CatServer() {
    reactor_->run_on_loop([this] {
      socket_.reset();
      server_.reset();
    });
    std::filesystem::remove_all(folder_);
  }

  std::string kubeconfig() const { return folder_ / "config"; }

 private:
  void serve(const std::shared_ptr<http::ServerCall>& call) {
    auto headers = http::WebSocket::answer_headers(call->request(), "v5.channel.k8s.io");
    if (!headers) return call->respond({.status = 400, .body = headers.error().message()});
    call->upgrade(
        *std::move(headers), [this](std::shared_ptr<io::Stream> stream, std::string rest) {
          socket_ = http::WebSocket::attach(
              *reactor_, http::WebSocket::Role::kServer, std::move(stream), std::move(rest),
              {.on_message = [this](const std::string& message, bool) { received(message); }}, {});
        });
  }

  // The first byte of a message is the channel: 0 the input, 1 the output, 3 the outcome, 255 an
  // end.
  void received(const std::string& message) {
    if (message.front() == '\0') return socket_->send("\x01" + message.substr(1), true);
    if (message != std::string("\xff\0", 2)) return;
    socket_->send("\x03{\"status\":\"Success\"}", true);
    socket_->close();
  }

  const std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<http::WebSocket> socket_;
  std::filesystem::path folder_;
};

TEST(DivisiTest, ExecGivesItsInputOnAsItComes) {
  const CatServer server;
  io::Process divisi =
      start({"kube", "--kubeconfig", server.kubeconfig(), "exec", "-i", "pod", "--", "cat"});
  for (const std::string line : {"one\n", "two\n"}) {
    ASSERT_EQ(::write(divisi.input().get(), line.data(), line.size()), 4);
    EXPECT_EQ(read_until(divisi.output().get(), line), line) << "before the input has ended";
  }
  divisi.input().reset();
  EXPECT_EQ(all_of(divisi.error().get()), "");
  EXPECT_EQ(divisi.wait()->code, 0);
}

TEST(DivisiTest, ExecGivesOnAnInputLargerThanAnyBuffer) {
  const CatServer server;
  const std::string file = server.kubeconfig() + ".input";
  const std::string text(std::size_t{8} << 20, 'x');
  std::ofstream(file, std::ios::binary) << text;
  auto divisi = io::Process::spawn(
      {.program = "/bin/sh",
       .arguments = {"-c", R"("$0" kube --kubeconfig "$1" exec -i pod -- cat < "$2")",
                     DIVISI_PROGRAM, server.kubeconfig(), file},
       .standard_output = io::Stdio::kPipe});
  ASSERT_TRUE(divisi) << divisi.error().message();
  EXPECT_TRUE(all_of(divisi->output().get()) == text);
  EXPECT_EQ(divisi->wait()->code, 0);
}

}  // namespace
}  // namespace divisi::apps
