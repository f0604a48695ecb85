// A node that follows its DIJob: the links of real nodes, the lists of a fake di-server.
#include "runtime/job_follower.h"

#include "base/testing/temp_folder.h"
#include "runtime/testing/fake_di_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>

namespace divisi::runtime {
namespace {

using namespace std::chrono_literals;
using testing::FakeDiServer;
using ::testing::HasSubstr;

bool eventually(const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// All ranks have one host here, so that they differ in their ports; `at` leads there, the names
// lead nowhere.
class FollowedNode {
 public:
  FollowedNode(int id, std::vector<int> expected, const JobServer& server, JobLinks links,
               std::chrono::milliseconds grace = 5s) {
    mesh::NodeOptions options;
    options.self.node = id;
    options.listen = fmt::format("tcp://127.0.0.{}:{}", id + 1, links.ports.front());
    options.expected_nodes = std::move(expected);
    options.join_timeout = 60s;
    for (int rank = 0; rank < links.rank; ++rank) {
      options.dial.push_back(fmt::format("tcp://{}:{}", links.hosts[static_cast<std::size_t>(rank)],
                                         links.ports.front()));
    }
    auto started = mesh::Node::start(*reactor_, options, {});
    if (!started) throw std::runtime_error(started.error().message());
    node_ = *std::move(started);
    reactor_->run_on_loop([&] {
      follower_ = std::make_unique<JobFollower>(
          *reactor_, *node_, server,
          JobFollower::Options{.links = std::move(links), .absent_grace = grace},
          [this](int node) { gone_.push_back(node); });
    });
  }
  ~FollowedNode() {
    reactor_->run_on_loop([&] { follower_.reset(); });
    node_->close(0ms);
  }
  mesh::Node* operator->() { return node_.get(); }
  bool sees(const std::vector<int>& nodes) {
    return eventually([&] {
      std::vector<int> now;
      for (const auto& peer : node_->peers()) now.push_back(peer.connected ? peer.node : -1);
      return now == nodes;
    });
  }
  // All that are gone for good, in order.
  bool has_dismissed(const std::vector<int>& nodes) {
    return eventually([&] {
      std::vector<int> now;
      reactor_->run_on_loop([&] { now = gone_; });
      return now == nodes;
    });
  }

 private:
  const std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
  std::vector<int> gone_;  // loop only
  std::unique_ptr<mesh::Node> node_;
  std::unique_ptr<JobFollower> follower_;
};

class JobFollowerTest : public ::testing::Test {
 protected:
  JobServer job() { return {*http::Url::parse(server_.url()), "/v2alpha1/job/lab/train", "", 0}; }

  // Free on the hosts of all ranks, and below the ports of outgoing connections.
  static int port() {
    static int next = 10'000 + ::getpid() % 1'000 * 20;
    while (!is_free(next)) ++next;
    return next++;
  }
  static bool is_free(int port) {
    const auto reactor = io::make_reactor();
    for (int rank = 0; rank < 3; ++rank) {
      const auto where = io::Address::parse(fmt::format("tcp://127.0.0.{}:{}", rank + 1, port));
      if (!reactor->listen(*where, [](const auto&) {})) return false;
    }
    return true;
  }

  JobLinks links(int rank, int ranks) const {
    JobLinks links{Topology::kMesh, rank, {port_}, {}};
    for (int i = 0; i < ranks; ++i) links.hosts.push_back(fmt::format("pod-{}.invalid", i));
    return links;
  }

  static std::string list(std::initializer_list<int> ranks) {
    std::string text;
    for (const int rank : ranks) {
      text +=
          fmt::format(R"({}{{"rank":{},"pod":"p{}","host":"pod-{}.invalid","ip":"127.0.0.{}"}})",
                      text.empty() ? "" : ",", rank, rank, rank, rank + 1);
    }
    return R"({"members":[)" + text + "]}";
  }

  FakeDiServer server_;
  const int port_ = port();
};

TEST_F(JobFollowerTest, NodesWhoseNamesAreNotKnownYetFindEachOther) {
  server_.set_members(list({0, 1}));
  FollowedNode first(0, {1}, job(), links(0, 2));
  FollowedNode second(1, {0}, job(), links(1, 2));
  EXPECT_TRUE(first->join().ok());
  EXPECT_TRUE(second->join().ok());
}

TEST_F(JobFollowerTest, MainDoesNotWaitForRanksThatNobodyLists) {
  server_.set_members(list({0, 2}));
  FollowedNode first(0, {1, 2}, job(), links(0, 3), 100ms);
  FollowedNode third(2, {0, 1}, job(), links(2, 3), 100ms);
  EXPECT_TRUE(first->join().ok());
  EXPECT_TRUE(third->join().ok());
  EXPECT_TRUE(third.sees({0}));
}

TEST_F(JobFollowerTest, AHoleThatIsFilledIsDialledByThoseAbove) {
  server_.set_members(list({0, 2}));
  FollowedNode first(0, {}, job(), links(0, 3), 50ms);
  FollowedNode third(2, {}, job(), links(2, 3), 50ms);
  ASSERT_TRUE(first.sees({2}));
  FollowedNode second(1, {0, 2}, job(), links(1, 3));
  server_.set_members(list({0, 1, 2}));
  EXPECT_TRUE(second->join().ok());
  EXPECT_TRUE(first.sees({1, 2}));
  EXPECT_TRUE(third.sees({0, 1}));
}

TEST_F(JobFollowerTest, WhoIsGoneIsForgottenAlsoAfterTheServerWasAway) {
  server_.set_members(list({0, 1, 2}));
  FollowedNode first(0, {1, 2}, job(), links(0, 3));
  auto second = std::make_unique<FollowedNode>(1, std::vector{0, 2}, job(), links(1, 3));
  FollowedNode third(2, {0, 1}, job(), links(2, 3));
  ASSERT_TRUE(first.sees({1, 2}) && third.sees({0, 1}));
  server_.set_status(503);
  server_.cut();
  second.reset();  // without a goodbye
  ASSERT_TRUE(server_.wait_for_streams(5));
  server_.set_members(list({0, 2}));
  server_.set_status(0);
  EXPECT_TRUE(first.sees({2}));
  EXPECT_TRUE(third.sees({0}));
}

TEST_F(JobFollowerTest, AListThatIsNotUnderstoodChangesNothing) {
  server_.set_members(list({0, 1}));
  FollowedNode first(0, {1}, job(), links(0, 2));
  FollowedNode second(1, {0}, job(), links(1, 2));
  ASSERT_TRUE(first.sees({1}));
  server_.set_members(R"({"members":[{"rank":"0"}]})");
  server_.set_members(R"({"members":[]})");
  // What comes after them is understood, and nobody was dismissed before.
  server_.set_members(list({0, 1, 2}));
  auto third = std::make_unique<FollowedNode>(2, std::vector{0, 1}, job(), links(2, 3));
  EXPECT_TRUE(first.sees({1, 2}) && second.sees({0, 2}));
  server_.set_members(list({0, 1}));
  third.reset();
  EXPECT_TRUE(first.sees({1}) && second.sees({0}));
  EXPECT_TRUE(first.has_dismissed({2}) && second.has_dismissed({2}));
}

class JobServerTest : public ::testing::Test {
 protected:
  ~JobServerTest() override {
    for (const char* name : {"DI_SERVER_URL", "DI_JOB_ID", "DI_RANK", "DIVISI_SECRET_FILE"}) {
      ::unsetenv(name);
    }
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
};

TEST_F(JobServerTest, ItIsReadFromTheOperatorsVariables) {
  EXPECT_FALSE(job_server_of_environment()->has_value());
  const divisi::testing::TempFolder folder;
  const std::string file = folder / "secret";
  std::ofstream(file) << "00ff\n";
  set("DI_SERVER_URL", "http://di-server.di-system:8081");
  EXPECT_FALSE(job_server_of_environment()->has_value());
  set("DI_JOB_ID", "lab/train");
  set("DI_RANK", "3");
  set("DIVISI_SECRET_FILE", file);
  const JobServer server = **job_server_of_environment();
  EXPECT_EQ(server.url.authority(), "di-server.di-system:8081");
  EXPECT_EQ(server.rank, 3);
  const http::Request request = server.request("GET", "/members");
  EXPECT_EQ(request.target, "/v2alpha1/job/lab/train/members");
  EXPECT_EQ(request.headers.get("Authorization"), "Bearer 00ff");
}

TEST_F(JobServerTest, AVariableThatCannotBeUnderstoodIsNamed) {
  const auto error = [] { return job_server_of_environment().error().message(); };
  set("DI_SERVER_URL", "di-server");
  set("DI_JOB_ID", "lab/train");
  EXPECT_THAT(error(), HasSubstr("DI_SERVER_URL"));
  set("DI_SERVER_URL", "http://di-server");
  for (const char* wrong : {"train", "/train", "lab/", "a/b/c"}) {
    set("DI_JOB_ID", wrong);
    EXPECT_THAT(error(), HasSubstr("DI_JOB_ID"));
  }
  set("DI_JOB_ID", "lab/train");
  set("DI_RANK", "first");
  EXPECT_THAT(error(), HasSubstr("DI_RANK: 'first'"));
}

}  // namespace
}  // namespace divisi::runtime
