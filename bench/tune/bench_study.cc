// bench_study noop FOLDER TRIALS
// bench_study memory STORAGE FOLDER TRIALS
// bench_study load FOLDER TRIALS
//
// `noop`: trials per second of an objective that does nothing, kept in SQLite, and how often the
// disk was waited for (when count_syncs is preloaded). `memory`: bytes on the heap for each
// finished trial of a study in STORAGE (memory or sqlite), less what the trial itself consists of.
// `load`: the time in which such a study is read; it is made first where it is not there. Prints
// one JSON line; times are of the wall.
#include "divisi/study.h"
#include "divisi/tune.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <filesystem>
#include <malloc.h>
#include <string>
#include <vector>

namespace {

using divisi::Value;
using divisi::tune::Structure;
using divisi::tune::Study;
using divisi::tune::TrialRecord;
using Clock = std::chrono::steady_clock;

constexpr const char* kStudy = "noop";
constexpr double kTrialBytes = 1024;  // what a finished trial may take beyond its payload

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// 0 without the preloaded counter.
long syncs() {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): how dlsym gives a function
  const auto count = reinterpret_cast<long (*)()>(::dlsym(RTLD_DEFAULT, "bench_syncs"));
  return count == nullptr ? 0 : count();
}

Structure space() {
  using divisi::tune::choice;
  using divisi::tune::uniform;
  return Structure({{"lr", uniform(0, 1)}, {"layers", choice(Value::Array{1, 2, 4})}});
}

void search(const std::string& url, std::int64_t trials) {
  divisi::tune::tune([](const Value&) -> Value { return 0.0; })
      .random(1)
      .max_steps(trials)
      .max_workers(1)
      .minimize(divisi::tune::R)
      .spaces(space())
      .storage(url, kStudy)
      .run();
}

// A study of the same shape that is kept open.
Study asked_study(const std::string& url, std::int64_t trials) {
  using namespace divisi::tune;
  const Structure structure = space();
  std::vector<Space> spaces;
  for (const HyperValue& value : structure.flatten()) spaces.push_back(value.space());
  Study study = Study::open(
      url, {.name = kStudy, .space = space_text(structure.flat_names(), spaces), .algorithm = "r"});
  Sampler sampler = Sampler::random(spaces, {.max_steps = trials, .words = python_random(1)});
  const auto config = [&](const Sample& sample) {
    return std::string("{\"lr\":") + std::to_string(sample.values[0]) + ",\"layers\":1}";
  };
  while (const auto trial = study.ask(sampler, config)) {
    study.tell(trial->id, {.values = {0.0}, .returned = "0.0", .metrics = "{\"time\":1e-06}"});
  }
  return study;
}

double payload(const TrialRecord& trial) {
  return static_cast<double>(sizeof(double) * (trial.raw.size() + trial.values.size()) +
                             trial.config.size() + trial.returned.size() + trial.metrics.size() +
                             trial.error.size());
}

std::string fresh_file(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/native.db";
  for (const char* const end : {"", "-wal", "-shm"}) std::filesystem::remove(path + end);
  return path;
}

int noop(const std::string& folder, std::int64_t trials) {
  const std::string path = fresh_file(folder);
  const long before = syncs();
  const Clock::time_point begin = Clock::now();
  search("sqlite:" + path, trials);
  const double seconds = seconds_since(begin);
  const auto count = static_cast<double>(trials);
  const std::size_t stored = Study::load("sqlite:" + path).size();
  std::printf(
      "{\"per_s\": %.6g, \"syncs_per_trial\": %.6g, \"sent\": %lld, \"received\": %zu, "
      "\"disordered\": 0}\n",
      count / seconds, static_cast<double>(syncs() - before) / count,
      static_cast<long long>(trials), stored);
  return 0;
}

int memory(const std::string& storage, const std::string& folder, std::int64_t trials) {
  const std::string url = storage == "memory" ? "memory:" : "sqlite:" + fresh_file(folder);
  const struct mallinfo2 before = ::mallinfo2();
  const Study study = asked_study(url, trials);
  const struct mallinfo2 after = ::mallinfo2();
  const double bytes = static_cast<double>(after.uordblks + after.hblkhd) -
                       static_cast<double>(before.uordblks + before.hblkhd);
  const auto count = static_cast<double>(trials);
  double content = 0;
  for (const TrialRecord& trial : study.trials()) content += payload(trial);
  std::printf(
      "{\"bytes\": %.6g, \"payload\": %.6g, \"beyond\": %.6g, \"limit\": %.6g, \"sent\": %lld, "
      "\"received\": %zu, \"disordered\": 0}\n",
      bytes / count, content / count, (bytes - content) / count, kTrialBytes,
      static_cast<long long>(trials), study.size());
  return 0;
}

int load(const std::string& folder, std::int64_t trials) {
  const std::string path = folder + "/ours-" + std::to_string(trials) + ".db";
  if (!std::filesystem::exists(path)) {
    std::filesystem::create_directories(folder);
    const std::string part = fresh_file(folder);
    search("sqlite:" + part, trials);
    std::filesystem::rename(part, path);
  }
  const std::clock_t begin = std::clock();
  const Study study = Study::load("sqlite:" + path);
  const std::vector<TrialRecord> all = study.trials();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("{\"seconds\": %.6g, \"sent\": %lld, \"received\": %zu, \"disordered\": 0}\n",
              seconds, static_cast<long long>(trials), all.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::int64_t trials = words.empty() ? 0 : std::atoll(words.back().c_str());
  if (words.size() == 3 && words[0] == "noop") return noop(words[1], trials);
  if (words.size() == 4 && words[0] == "memory") return memory(words[1], words[2], trials);
  if (words.size() == 3 && words[0] == "load") return load(words[1], trials);
  std::fputs(
      "usage: bench_study noop FOLDER TRIALS\n"
      "       bench_study memory memory|sqlite FOLDER TRIALS\n"
      "       bench_study load FOLDER TRIALS\n",
      stderr);
  return 2;
}
