// The writer of a job (spec 7.7). That TensorBoard reads its files: tests/integration.
#include "divisi/writer.h"

#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;
using divisi::DistributedWriter;
using divisi::Parallel;
using jobs::Arguments;
using jobs::demand;
using jobs::Folder;
using jobs::Gathered;
using ::testing::HasSubstr;

void write_from_both(const Arguments& args) {
  auto& router = Parallel::instance();
  const int node = router.node_id();
  Gathered<int> written;
  divisi::Subscription on_written;
  if (node == 0) on_written = router.on("written", [&](int who) { written.add(who); });
  const auto writer = DistributedWriter::get_instance(args.at(0) + "/log." + std::to_string(node));
  writer->plugin(router, node == 0);
  for (int step = 0; step < 3; ++step) {
    writer->add_scalar("reward/" + std::to_string(node), step * 0.5, step);
  }
  writer->add_text("node/" + std::to_string(node), "hello", 0);
  const std::vector<double> values{1, 2, 3};
  writer->add_histogram("weights/" + std::to_string(node), values, 0);
  writer->flush();
  router.emit("written", node);
  // Events of a peer run in their order: its figures are in the file when this has come.
  if (node == 0) demand(written.wait_for(1), "the other node has written");
}
DIVISI_MAIN(write_from_both)

TEST(WriterTest, A072_one_event_file_holds_the_scalars_of_both_nodes) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 2, .log_level = "error"})(write_from_both,
                                                                    {folder.path()});
  EXPECT_FALSE(fs::exists(folder.path() + "/log.1")) << "only the writer touches files";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder.path() + "/log.0")) {
    files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(files[0].filename().string(), HasSubstr("events.out.tfevents."));
  const std::string bytes =
      jobs::read_note(files[0].parent_path().string(), files[0].filename().string()).value();
  for (const char* const node : {"0", "1"}) {
    EXPECT_THAT(bytes, HasSubstr(std::string("reward/") + node));
    EXPECT_THAT(bytes, HasSubstr(std::string("node/") + node));
    EXPECT_THAT(bytes, HasSubstr(std::string("weights/") + node));
  }
}

}  // namespace
