// Bad input: one clear line, the specified exit code, never a hang.
#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

using divisi::Parallel;
using divisi::ParallelOptions;
using divisi::task;
using jobs::failure_of;
using jobs::Folder;
using jobs::kSoon;
using jobs::Launched;
using namespace std::chrono_literals;
using namespace std::string_literals;
using ::testing::HasSubstr;

void idle() {}
DIVISI_MAIN(idle)
void unregistered() {}

ParallelOptions tcp(int n) {
  return {.n_parallel_workers = n,
          .protocol = "tcp",
          .address = "127.0.0.1",
          .ports = jobs::free_ports(n),
          .log_level = "error"};
}

jobs::Failure failure_with(const ParallelOptions& options) {
  return failure_of([&] { Parallel::runner(options)(idle); });
}

// --- options ---

TEST(BadOptionsTest, A064_no_workers_an_unknown_topology_and_too_many_ports_are_usage_errors) {
  auto failure = failure_with({.n_parallel_workers = 0});
  EXPECT_TRUE(failure.usage);
  EXPECT_THAT(failure.text, HasSubstr("n_parallel_workers"));

  failure = failure_with({.n_parallel_workers = 2, .topology = "ring"});
  EXPECT_TRUE(failure.usage);
  EXPECT_THAT(failure.text, HasSubstr("ring"));

  auto options = tcp(2);
  options.ports = {50515, 50516, 50517};
  failure = failure_with(options);
  EXPECT_TRUE(failure.usage);
  EXPECT_EQ(failure.text, "3 ports were given for 2 workers");
}

TEST(BadOptionsTest, Every_other_wrong_value_is_named) {
  const auto said = [](const ParallelOptions& options) {
    const auto failure = failure_with(options);
    EXPECT_TRUE(failure.usage) << failure.text;
    return failure.text;
  };
  EXPECT_THAT(said({.n_parallel_workers = -1}), HasSubstr("-1"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .mq_type = "pigeon"}), HasSubstr("pigeon"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .protocol = "smoke"}), HasSubstr("smoke"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .attach_to = {"nowhere"}}), HasSubstr("nowhere"));
  EXPECT_THAT(said({.n_parallel_workers = 2, .node_ids = {4, 4}}), HasSubstr("4"));
  EXPECT_THAT(said({.n_parallel_workers = 3, .node_ids = {4, 5}}), HasSubstr("node"));
  EXPECT_THAT(said({.n_parallel_workers = 2, .worker_lost = "cry"}), HasSubstr("cry"));
  EXPECT_THAT(said({.n_parallel_workers = 2, .hub_lost = "cry"}), HasSubstr("cry"));
  EXPECT_THAT(said({.n_parallel_workers = 2, .codec = "morse"}), HasSubstr("morse"));
  EXPECT_THAT(said({.n_parallel_workers = 2, .log_level = "loud"}), HasSubstr("loud"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .max_retries = -5}), HasSubstr("max_retries is -5"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .send_timeout = -1ms}), HasSubstr("send_timeout"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .memory_bytes = 0}), HasSubstr("memory_bytes"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .max_message_bytes = 0}),
              HasSubstr("max_message_bytes"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .expected_nodes = -1}), HasSubstr("expected_nodes"));
  EXPECT_THAT(said({.n_parallel_workers = 1, .grace = -1ms}), HasSubstr("grace"));
}

TEST(BadOptionsTest, A_function_that_is_not_registered_is_an_error_that_names_the_macro) {
  auto failure = failure_of([] { Parallel::runner({.n_parallel_workers = 2})(unregistered); });
  EXPECT_TRUE(failure.usage);
  EXPECT_THAT(failure.text, HasSubstr("DIVISI_MAIN"));
  failure = failure_of([] { Parallel::runner({.n_parallel_workers = 2})([] {}); });
  EXPECT_TRUE(failure.usage);
  EXPECT_THAT(failure.text, HasSubstr("DIVISI_MAIN"));
  EXPECT_EQ(Parallel::runner({.n_parallel_workers = 2}).run(unregistered), 2);
}

// --- addresses ---

TEST(BadAddressTest, A_bind_address_that_is_not_ours_is_named_with_exit_code_3) {
  auto options = tcp(2);
  options.address = "192.0.2.77";  // kept for documentation: nobody has it
  const auto failure = failure_with(options);
  EXPECT_EQ(failure.exit_code, 3);
  EXPECT_THAT(failure.text, HasSubstr("192.0.2.77"));
}

TEST(BadAddressTest, An_address_nobody_listens_on_is_a_join_timeout_that_names_it) {
  const auto dead = jobs::loopback(jobs::free_ports(1)[0]);
  for (const int n : {1, 2}) {
    auto options = tcp(n);
    options.topology = "alone";
    options.attach_to = {dead};
    options.join_timeout = 300ms;
    const auto failure = failure_with(options);
    EXPECT_EQ(failure.exit_code, 3) << n;
    EXPECT_THAT(failure.text, HasSubstr(dead)) << n;
    EXPECT_THAT(failure.text, HasSubstr("timeout")) << n;
    EXPECT_EQ(Parallel::runner(options).run(idle), 3);
  }
}

TEST(BadAddressTest, A_job_with_fewer_nodes_than_expected_times_out_and_says_so) {
  auto options = tcp(1);
  options.expected_nodes = 3;
  options.join_timeout = 300ms;
  const auto failure = failure_with(options);
  EXPECT_EQ(failure.exit_code, 3);
  EXPECT_THAT(failure.text, HasSubstr("0 of 2"));
}

// --- peers that do not belong here ---

// args: address to attach to, job id, secret, node id
LAUNCHER(stranger) {
  return Parallel::runner({.n_parallel_workers = 1,
                           .attach_to = {args.at(0)},
                           .protocol = "tcp",
                           .address = "127.0.0.1",
                           .ports = jobs::free_ports(1),
                           .topology = "alone",
                           .node_ids = {std::stoi(args.at(3))},
                           .job_id = args.at(1),
                           .secret = args.at(2),
                           .join_timeout = 20s})
      .run([] {
        task.router().emit("secret_news", "from a stranger");
        task.router().flush(kSoon);
      });
}

// args: port, folder. Runs until there is a note "enough".
LAUNCHER(guarded) {
  return Parallel::runner({.n_parallel_workers = 1,
                           .protocol = "tcp",
                           .address = "127.0.0.1",
                           .ports = {std::stoi(args.at(0))},
                           .job_id = "ours",
                           .secret = "a long enough secret"})
      .run([&] {
        std::atomic<int> heard{0};
        const auto on_secret_news =
            task.router().on("secret_news", [&](const std::string&) { ++heard; });
        jobs::note(args.at(1), "listens", "");
        jobs::wait_for_note(args.at(1), "enough", 2 * kSoon);
        std::uint64_t received = 0;
        for (const auto& topic : task.router().stats().topics) received += topic.received;
        jobs::note(args.at(1), "heard", std::to_string(heard) + " " + std::to_string(received));
      });
}

std::string little_endian(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

std::string frame(char kind, const std::string& content, std::uint64_t number = 0) {
  const char codec = kind == '\x10' ? '\1' : '\0';
  return std::string{kind, '\0', codec, '\0'} + little_endian(content.size(), 4) +
         little_endian(number, 8) + content;
}

// What docs/wire.md lets a dialler say, all at once: who it is, a proof made without the secret,
// and behind it an event as if it had been let in. Returns when the other side has closed.
void send_without_being_let_in(int port, const std::string& job) {
  const auto text = [](const std::string& word) {
    return static_cast<char>(0xa0 | word.size()) + word;
  };
  const auto bytes32 = [](char byte) { return std::string("\xc4\x20") + std::string(32, byte); };
  const std::string hello = '\x85' + text("job") + text(job) + text("node") + '\x09' +
                            text("incarnation") + '\x07' + text("nonce") + bytes32('n') +
                            text("auth") + '\xc3';
  const std::string welcome = '\x82' + text("resume") + '\0' + text("credit") + "\xce\0\x10\0\0"s;
  const std::string topic = "secret_news";
  const std::string body = '\x91' + text("from a stranger");
  const std::string event = little_endian(0, 4) + little_endian(body.size(), 4) +
                            little_endian(topic.size(), 2) + topic + body;
  const std::string all = "DIVISI\2\0"s + frame('\x01', hello) +
                          frame('\x02', '\x81' + text("proof") + bytes32('p')) +
                          frame('\x03', welcome) + frame('\x10', event, 1) + frame('\x27', "");

  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const timeval deadline{std::chrono::seconds(kSoon).count(), 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
  const bool is_sent =
      ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, all.data(), all.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(all.size());
  ::shutdown(fd, SHUT_WR);
  std::array<char, 4096> answer;
  ssize_t n = 1;
  while (n > 0) n = ::recv(fd, answer.data(), answer.size(), 0);
  const bool is_closed = n == 0 || errno == ECONNRESET;
  ::close(fd);
  EXPECT_TRUE(is_sent);
  EXPECT_TRUE(is_closed);
}

class StrangerTest : public ::testing::Test {
 protected:
  void SetUp() override { jobs::wait_for_note(folder_.path(), "listens"); }

  // What the guarded node heard in the end.
  std::string end() {
    jobs::note(folder_.path(), "enough", "");
    EXPECT_EQ(guarded_.wait(), 0);
    return jobs::read_note(folder_.path(), "heard").value_or("nothing");
  }

  const Folder folder_;
  const int port_ = jobs::free_ports(1)[0];
  const std::string address_ = jobs::loopback(port_);
  Launched guarded_{"guarded", {std::to_string(port_), folder_.path()}};
};

TEST_F(StrangerTest, A071_a_wrong_secret_is_refused_and_both_sides_say_why) {
  Launched stranger("stranger", {address_, "ours", "another secret", "1"});
  EXPECT_EQ(stranger.wait(), 3);
  EXPECT_THAT(stranger.output(), HasSubstr("wrong secret"));
  EXPECT_THAT(stranger.output(), HasSubstr(address_));
  EXPECT_TRUE(jobs::eventually(
      [&] { return guarded_.output().find("wrong secret") != std::string::npos; }));
  send_without_being_let_in(port_, "ours");
  EXPECT_EQ(end(), "0 0") << "nothing was decoded";
}

TEST_F(StrangerTest, A071_another_job_is_refused_and_both_sides_say_why) {
  Launched stranger("stranger", {address_, "theirs", "a long enough secret", "1"});
  EXPECT_EQ(stranger.wait(), 3);
  EXPECT_THAT(stranger.output(), HasSubstr("another job id"));
  EXPECT_TRUE(jobs::eventually([&] {
    return guarded_.output().find("theirs") != std::string::npos;
  })) << guarded_.output();
  send_without_being_let_in(port_, "theirs");
  EXPECT_EQ(end(), "0 0") << "nothing was decoded";
}

TEST_F(StrangerTest, A_node_id_that_is_taken_is_refused_with_exit_code_3) {
  Launched stranger("stranger", {address_, "ours", "a long enough secret", "0"});
  EXPECT_EQ(stranger.wait(), 3);
  EXPECT_THAT(stranger.output(), HasSubstr("node id 0"));
  EXPECT_EQ(end(), "0 0");
}

TEST_F(StrangerTest, One_who_knows_job_and_secret_is_let_in) {
  Launched friendly("stranger", {address_, "ours", "a long enough secret", "1"});
  EXPECT_EQ(friendly.wait(), 0);
  EXPECT_EQ(end(), "1 1");
}

}  // namespace
