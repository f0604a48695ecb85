#include "divisi/checkpoint.h"

#include "base/testing/wait_until.h"
#include "runtime/task_fake_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <sys/resource.h>
#include <thread>

namespace divisi {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using runtime::testing::FakeRouter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::ThrowsMessage;
using testing::wait_until;

using divisi::testing::kSoon;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = (fs::temp_directory_path() / "divisi_test_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> files(const fs::path& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string contents(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

// Writes beyond this fail, as they would on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(CheckpointTest, AFileIsReplacedAsAWhole) {
  write_file_atomically(path("model"), "old");
  write_file_atomically(path("model"), "newer");
  EXPECT_EQ(contents(path("model")), "newer");
  EXPECT_THAT(files(folder_), ElementsAre("model"));
}

TEST_F(CheckpointTest, WhereTheDiskIsFullTheOldFileStays) {
  write_file_atomically(path("model"), "old");
  const std::string large(100'000, 'x');
  {
    const FileSizeLimit limit(50'000);
    EXPECT_THAT([&] { write_file_atomically(path("model"), large); },
                ThrowsMessage<Error>(AllOf(HasSubstr(path("model")), EndsWith("File too large"))));
  }
  EXPECT_EQ(contents(path("model")), "old");
  EXPECT_THAT(files(folder_), ElementsAre("model"));
}

TEST_F(CheckpointTest, ABadFolderIsNamedWithTheReason) {
  const std::string missing = path("nowhere/model");
  EXPECT_THAT([&] { write_file_atomically(missing, "x"); },
              ThrowsMessage<Error>("cannot write '" + missing + "': No such file or directory"));
  write_file_atomically(path("file"), "x");
  EXPECT_THAT([&] { write_file_atomically(path("file/model"), "x"); },
              ThrowsMessage<Error>(HasSubstr("Not a directory")));
}

TEST_F(CheckpointTest, AWriterThatThrowsLeavesTheOldFile) {
  write_file_atomically(path("model"), "old");
  EXPECT_THROW(write_file_atomically(path("model"),
                                     [](const std::string& temporary) {
                                       std::ofstream(temporary) << "half";
                                       throw std::runtime_error("half way");
                                     }),
               std::runtime_error);
  EXPECT_EQ(contents(path("model")), "old");
  EXPECT_THAT(files(folder_), ElementsAre("model"));
}

TEST_F(CheckpointTest, TheLatestCheckpointIsTheHighestIterationOrALaterFinal) {
  const fs::path ckpt = folder_ / "ckpt";
  EXPECT_EQ(latest_checkpoint(folder_), std::nullopt);
  fs::create_directory(ckpt);
  EXPECT_EQ(latest_checkpoint(folder_), std::nullopt);
  for (const char* const name : {"iteration_9.pth.tar", "iteration_100.pth.tar", "eval.pth.tar",
                                 "iteration_x.pth.tar", ".tmp.1.0.iteration_500.pth.tar"}) {
    write_file_atomically((ckpt / name).string(), name);
  }
  EXPECT_THAT(latest_checkpoint(folder_), Optional(EndsWith("ckpt/iteration_100.pth.tar")));
  const fs::path last = ckpt / "final.pth.tar";
  write_file_atomically(last.string(), "final");
  EXPECT_THAT(latest_checkpoint(ckpt.string() + "/"), Optional(EndsWith("ckpt/final.pth.tar")));
  fs::last_write_time(last, fs::last_write_time(last) - 1h);
  EXPECT_THAT(latest_checkpoint(folder_), Optional(EndsWith("iteration_100.pth.tar")));
}

TEST_F(CheckpointTest, TheFirstModelIsSavedOnce) {
  Task lone;
  const auto running = lone.start({.ctx = std::make_shared<OnlineRLContext>()});
  int saves = 0;
  lone.use(ckpt_saver(
      [&](const std::string& file) {
        ++saves;
        std::ofstream(file) << "model";
      },
      folder_, {.train_freq = 10}, lone));
  lone.run(3);
  EXPECT_EQ(saves, 1);
  EXPECT_THAT(files(folder_ / "ckpt"), ElementsAre("iteration_0.pth.tar"));
}

TEST_F(CheckpointTest, ASaveThatFailsHalfWayLeavesTheCheckpointOfBefore) {
  Task lone;
  const auto running = lone.start({.ctx = std::make_shared<OnlineRLContext>()});
  const fs::path ckpt = folder_ / "ckpt";
  const fs::path file = ckpt / "iteration_0.pth.tar";
  fs::create_directory(ckpt);
  write_file_atomically(file.string(), "whole");
  Middleware saver = ckpt_saver(
      [&](const std::string& temporary) {
        std::ofstream(temporary) << "half";
        EXPECT_EQ(contents(file), "whole") << "while it is written";
        throw std::runtime_error("half way");
      },
      folder_, {.train_freq = 10}, lone);
  OnlineRLContext ctx;
  EXPECT_THROW(saver(ctx), std::runtime_error);
  EXPECT_EQ(contents(file), "whole");
  EXPECT_THAT(files(ckpt), ElementsAre("iteration_0.pth.tar"));
}

TEST_F(CheckpointTest, InAJobLearnersAndEvaluatorsSave) {
  const auto is_void_for = [&](std::string_view role) {
    FakeRouter router(0);
    Task node(router);
    const auto running = node.start();
    if (!role.empty()) node.add_role(role);
    return ckpt_saver([](const std::string&) {}, folder_, {}, node).is_void();
  };
  EXPECT_FALSE(is_void_for(Role::kLearner));
  EXPECT_FALSE(is_void_for(Role::kEvaluator));
  EXPECT_FALSE(is_void_for(""));
  EXPECT_TRUE(is_void_for(Role::kCollector));
}

TEST_F(CheckpointTest, ARunEndsBeyondItsLimit) {
  Task lone;
  const auto running = lone.start({.ctx = std::make_shared<OnlineRLContext>()});
  lone.use([](OnlineRLContext& ctx) { ++ctx.train_iter; });
  lone.use(termination_checker({.max_env_step = 0, .max_train_iter = 5}, lone));
  lone.use(final_ctx_saver(path("deep/result"), lone));
  lone.run(100);
  EXPECT_EQ(lone.ctx<OnlineRLContext>().train_iter, 6);
  EXPECT_EQ(contents(path("deep/result/result.json")),
            "{\n  \"total_step\": 5,\n  \"train_iter\": 6,\n  \"last_eval_iter\": -1,\n"
            "  \"env_step\": 0,\n  \"env_episode\": 0,\n  \"eval_value\": null\n}\n");
}

TEST_F(CheckpointTest, ALimitOfACounterThatTheContextHasNotIsAnError) {
  Task lone;
  const auto running = lone.start();
  lone.use(termination_checker({.max_train_iter = 5}, lone));
  EXPECT_THAT([&] { lone.run(1); }, ThrowsMessage<UsageError>(HasSubstr("train_iter")));
}

// Nodes of different pace, each in its own thread. Rank 0 is the fastest, so its end would find
// the others iterations behind.
TEST_F(CheckpointTest, AllRanksFinishInTheSameIteration) {
  constexpr int kRanks = 3;
  std::vector<std::unique_ptr<FakeRouter>> routers;
  std::vector<std::unique_ptr<Task>> nodes;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto router = std::make_unique<FakeRouter>(rank);
    for (const auto& other : routers) FakeRouter::link(*other, *router);
    nodes.push_back(std::make_unique<Task>(*router));
    routers.push_back(std::move(router));
  }
  std::promise<void> go;
  const std::shared_future<void> started = go.get_future();
  std::vector<std::future<std::int64_t>> ends;
  std::vector<Running> lives;
  for (int rank = 0; rank < kRanks; ++rank) {
    Task& node = *nodes[static_cast<std::size_t>(rank)];
    lives.push_back(node.start({.ctx = std::make_shared<OnlineRLContext>()}));
    // Only rank 0 counts; the others have its word.
    node.use([rank, started](OnlineRLContext& ctx) {
      if (rank == 0) ++ctx.env_step;
      if (rank == 2 && ctx.total_step == 0) started.wait();
    });
    node.use(ddp_termination_checker(
        {.max_env_step = 20, .rank = rank, .n_ranks = kRanks, .timeout = kSoon}, node));
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    Task& node = *nodes[static_cast<std::size_t>(rank)];
    ends.push_back(std::async(std::launch::async, [&node] {
      node.run(1000);
      const std::int64_t last = node.ctx().total_step;
      node.stop();  // which tells the others to finish
      return last;
    }));
  }
  // Rank 0 has said its last word before rank 2 has begun.
  wait_until("rank 0 has said its last word",
             [&] { return routers[0]->sent("task.ddp_termination").size() >= 21; });
  go.set_value();
  for (auto& end : ends) {
    ASSERT_EQ(end.wait_for(kSoon), std::future_status::ready);
    EXPECT_EQ(end.get(), 20);
  }
}

TEST_F(CheckpointTest, ARankWithoutAWordSaysSo) {
  FakeRouter router(1);
  Task node(router);
  const auto running = node.start({.ctx = std::make_shared<OnlineRLContext>()});
  node.use(ddp_termination_checker({.rank = 1, .timeout = 1ms}, node));
  EXPECT_THAT([&] { node.run(1); }, ThrowsMessage<TimeoutError>(HasSubstr("no word of rank 0")));
}

}  // namespace
}  // namespace divisi
