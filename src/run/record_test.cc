#include "run/record.h"

#include "base/testing/temp_folder.h"
#include "run/job_log.h"
#include "run/job_table.h"
#include "run/port_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace divisi::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobRecord running_job(const std::string& name) {
  JobRecord record;
  record.name = name;
  record.backend = "local";
  record.state = JobState::kRunning;
  record.created = std::chrono::system_clock::now();
  record.command_line = {"--workers", "2"};
  record.supervisor = process_of(::getpid());
  record.workers = {WorkerRecord{.rank = 0, .host = "127.0.0.1"},
                    WorkerRecord{.rank = 1, .host = "127.0.0.2", .exit_code = 3, .reason = "why"},
                    WorkerRecord{.rank = 2, .name = "train-work-2", .task = "work", .restarts = 1}};
  record.data["port"] = 50515;
  return record;
}

TEST(JobRecordTest, WhatIsSavedIsRead) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  const auto claimed = records.claim(running_job("train"));
  ASSERT_TRUE(claimed) << claimed.error().message();
  const auto read = records.load("train");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(to_json(*read), to_json(*claimed));
  EXPECT_EQ(read->supervisor, process_of(::getpid()));
  struct stat about{};
  ASSERT_EQ(::stat(records.job_folder("train").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 077U, 0U) << "secrets are kept there";
}

TEST(JobRecordTest, ANameBelongsToOneJobUntilThatHasEnded) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  JobRecord job = *records.claim(running_job("train"));
  const auto second = records.claim(running_job("train"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr("a job train is Running"));
  job.state = JobState::kSucceeded;
  ASSERT_TRUE(records.save(job).ok());
  EXPECT_TRUE(records.claim(running_job("train")));
}

TEST(JobRecordTest, OfManyThatClaimAtOnceOneGetsTheName) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { winners += records.claim(running_job("train")) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST(JobRecordTest, AJobWhoseSupervisorIsGoneHasFailed) {
  JobRecord job = running_job("train");
  settle(job);
  EXPECT_EQ(job.state, JobState::kRunning);
  job.supervisor->started += "0";  // the number is in use again, by us
  settle(job);
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_THAT(job.reason, HasSubstr("was killed"));
}

TEST(JobRecordTest, ANameIsTakenFromTheMomentItIsClaimed) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  JobRecord job = running_job("train");
  job.state = JobState::kPending;
  job.supervisor.reset();
  job = *records.claim(job);
  EXPECT_EQ(records.load_settled("train")->state, JobState::kPending);
  EXPECT_FALSE(records.claim(running_job("train")));
  job.supervisor->started += "0";
  ASSERT_TRUE(records.save(job).ok());
  EXPECT_EQ(records.load_settled("train")->state, JobState::kFailed);
  EXPECT_TRUE(records.claim(running_job("train")));
}

TEST(JobRecordTest, AnEndedJobStaysUntilTheNewOneIsKept) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  JobRecord job = *records.claim(running_job("train"));
  job.state = JobState::kSucceeded;
  ASSERT_TRUE(records.save(job).ok());
  folder.write("jobs/train/output.log", "lines");
  ASSERT_TRUE(records.claim(running_job("train")));
  EXPECT_EQ(::access((folder / "jobs/train/output.log").c_str(), F_OK), -1);
  ASSERT_TRUE(records.undo_claim("train").ok());
  EXPECT_EQ(records.load("train")->state, JobState::kSucceeded);
  EXPECT_EQ(::access((folder / "jobs/train/output.log").c_str(), F_OK), 0);
  ASSERT_TRUE(records.claim(running_job("train")));
  ASSERT_TRUE(records.keep_claim("train").ok());
  ASSERT_TRUE(records.undo_claim("train").ok());
  EXPECT_EQ(records.load("train").error().code(), Code::kNotFound);
}

TEST(JobRecordTest, ARecordThatCannotBeReadIsNotReplaced) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  folder.write("jobs/train/record.json", "{");
  const auto claimed = records.claim(running_job("train"));
  ASSERT_FALSE(claimed);
  EXPECT_THAT(claimed.error().message(), HasSubstr("choose another --name, or remove"));
  EXPECT_EQ(::access((folder / "jobs/train/record.json").c_str(), F_OK), 0);
}

TEST(JobRecordTest, ANameThatIsNotThereComesWithTheNearest) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  ASSERT_TRUE(records.claim(running_job("train")));
  const auto missing = records.load("trian");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), HasSubstr("did you mean 'train'?"));
  EXPECT_FALSE(records.load("../train"));
}

TEST(JobRecordTest, ARecordThatCannotBeReadIsNamed) {
  const testing::TempFolder folder;
  const JobRecords records(folder / "jobs");
  ASSERT_TRUE(records.claim(running_job("good")));
  folder.write("jobs/bad/record.json", "{");
  std::vector<std::string> problems;
  EXPECT_EQ(records.list(&problems).size(), 1U);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0], HasSubstr("bad/record.json"));
}

TEST(JobLogTest, LinesAreSplitAndComeBack) {
  LineSplitter splitter;
  EXPECT_THAT(splitter.add("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(splitter.add("o\r\nthree"), ElementsAre("two"));
  EXPECT_THAT(splitter.finish(), ElementsAre("three"));
  EXPECT_EQ(splitter.add(std::string(LineSplitter::kMaxLine + 5, 'x')).size(), 1U);
  const testing::TempFolder folder;
  auto writer = JobLogWriter::open(folder / "log");
  ASSERT_TRUE(writer);
  JobLogReader reader(folder / "log");
  const OutputLine line{.rank = 12,
                        .time = std::chrono::system_clock::time_point(std::chrono::seconds(5)),
                        .is_error = true,
                        .text = " a b "};
  writer->write({line, line});
  const auto lines = reader.take();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].rank, 12);
  EXPECT_EQ(lines[1].text, " a b ");
  EXPECT_TRUE(lines[1].is_error);
  EXPECT_EQ(lines[1].time, line.time);
  EXPECT_TRUE(reader.take().empty());
}

TEST(JobLogTest, ALongLogIsTakenInParts) {
  const testing::TempFolder folder;
  auto writer = JobLogWriter::open(folder / "log");
  ASSERT_TRUE(writer);
  constexpr std::size_t kLines = 1200;
  writer->write(std::vector<OutputLine>(kLines, {.rank = 0, .text = std::string(10'000, 'x')}));
  JobLogReader reader(folder / "log");
  std::size_t lines = 0;
  int parts = 0;
  do {
    const auto part = reader.take();
    EXPECT_LE(part.size(), kLines / 2);
    lines += part.size();
    ++parts;
  } while (!reader.at_end());
  EXPECT_EQ(lines, kLines);
  EXPECT_GT(parts, 2);
}

TEST(OutputTest, ALineHasOnePrefix) {
  EXPECT_EQ(prefixed({.rank = 2, .text = "hello"}, 1), "[node 2] hello");
  EXPECT_EQ(prefixed({.rank = 2, .text = "hello"}, 3), "[node 6] hello");
  EXPECT_EQ(prefixed({.rank = 2, .text = "[node 7] hello"}, 3), "[node 7] hello");
  EXPECT_EQ(prefixed({.rank = 2, .worker = "train-work-2", .text = "[node 7] hello"}, 1),
            "[train-work-2] [node 7] hello");
}

TEST(OutputTest, ALineOfAPodOrAboutTheJobIsReadAsItWasWritten) {
  const OutputLine line{.rank = 2, .worker = "train-work-2", .text = "a: b"};
  std::string text = log_line(line);
  text.pop_back();
  const auto read = parse_log_line(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 2);
  EXPECT_EQ(read->worker, "train-work-2");
  EXPECT_EQ(read->text, "a: b");
  text = log_line({.is_note = true, .text = "Running: all pods are ready"});
  text.pop_back();
  const auto note = parse_log_line(text);
  ASSERT_TRUE(note);
  EXPECT_TRUE(note->is_note);
  EXPECT_EQ(note->text, "Running: all pods are ready");
  EXPECT_FALSE(parse_log_line("2026-11-17T14:00:00.123456Z 2:pod"));
}

TEST(PortChoiceTest, APortBelongsToOneJobAtATime) {
  auto first = take_any_ports({"127.0.0.1", "127.0.0.2"}, 2);
  ASSERT_TRUE(first) << first.error().message();
  const auto second = take_ports({"127.0.0.1"}, first->first + 1, 1);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message(), HasSubstr("belongs to another job"));
  const int port = first->first;
  first->locks.clear();
  EXPECT_TRUE(take_ports({"127.0.0.1"}, port, 2));
}

TEST(JobTableTest, ColumnsAreAligned) {
  EXPECT_EQ(columns({{"A", "B"}, {"long", "x"}}), "A     B\nlong  x\n");
  EXPECT_EQ(age_text(std::chrono::seconds(119)), "119s");
  EXPECT_EQ(age_text(std::chrono::minutes(119)), "119m");
  EXPECT_EQ(age_text(std::chrono::hours(50)), "2d");
}

}  // namespace
}  // namespace divisi::run
