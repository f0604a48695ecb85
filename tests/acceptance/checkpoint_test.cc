// Checkpoints (spec 7.6, 9.5) and the end of a run on several nodes.
#include "divisi/checkpoint.h"

#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

namespace {

namespace fs = std::filesystem;
using divisi::OnlineRLContext;
using divisi::Parallel;
using divisi::task;
using jobs::Arguments;
using jobs::Folder;
using jobs::kSoon;
using ::testing::ElementsAre;

std::vector<std::string> files(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(CheckpointTest, A107_a_checkpoint_by_iteration_by_evaluation_and_at_the_end) {
  const Folder folder;
  const std::string ckpt = folder.path() + "/ckpt";
  const auto running = task.start({.ctx = std::make_shared<OnlineRLContext>()});
  std::string model = "first";
  auto saver = divisi::ckpt_saver([&](const std::string& path) { std::ofstream(path) << model; },
                                  folder.path(), {.train_freq = 100});
  OnlineRLContext ctx;
  ctx.train_iter = 1;
  ctx.eval_value = 9.4;
  saver(ctx);
  EXPECT_THAT(files(ckpt), ElementsAre("eval.pth.tar"));
  fs::remove(ckpt + "/eval.pth.tar");

  ctx.train_iter = 100;
  ctx.eval_value = 1;
  saver(ctx);
  EXPECT_THAT(files(ckpt), ElementsAre("iteration_100.pth.tar"));

  model = "last";
  task.set_finish();
  saver(ctx);
  EXPECT_THAT(files(ckpt), ElementsAre("final.pth.tar", "iteration_100.pth.tar"));
  EXPECT_EQ(jobs::read_note(ckpt, "final.pth.tar"), "last");
  EXPECT_EQ(jobs::read_note(ckpt, "iteration_100.pth.tar"), "first");
}

TEST(CheckpointTest, A_folder_that_is_named_ckpt_is_used_itself) {
  const Folder folder;
  const std::string ckpt = folder.path() + "/ckpt";
  const auto running = task.start({.ctx = std::make_shared<OnlineRLContext>()});
  task.set_finish();
  OnlineRLContext ctx;
  divisi::ckpt_saver([](const std::string& path) { std::ofstream(path) << "x"; }, ckpt)(ctx);
  EXPECT_THAT(files(ckpt), ElementsAre("final.pth.tar"));
}

// Rank 1 is far behind when rank 0 decides.
void finish_in_step(const Arguments& args) {
  const int rank = Parallel::instance().node_id();
  const auto running = task.start({.ctx = std::make_shared<OnlineRLContext>()});
  task.use([&](OnlineRLContext& ctx) {
    if (rank == 0) ++ctx.train_iter;
    if (rank == 1 && ctx.total_step == 0) jobs::wait_for_note(args.at(0), "decided");
    if (rank == 0 && ctx.train_iter == 6) jobs::note(args.at(0), "decided", "");
  });
  task.use(divisi::ddp_termination_checker({.max_train_iter = 5, .rank = rank, .timeout = kSoon}));
  task.run();
  jobs::note(args.at(0), std::to_string(rank), std::to_string(task.ctx().total_step));
}
DIVISI_MAIN(finish_in_step)

TEST(CheckpointTest, Ranks_finish_in_the_same_iteration) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 3, .log_level = "error"})(finish_in_step,
                                                                    {folder.path()});
  for (const char* const rank : {"0", "1", "2"}) {
    EXPECT_EQ(jobs::read_note(folder.path(), rank), "5");
  }
}

}  // namespace
