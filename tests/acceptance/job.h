// What tests with real worker processes share. Workers say what they found in two ways: an
// exception (`demand`), whose text the launcher's WorkerError carries, and notes in a folder.
#pragma once

#include "divisi/divisi.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace jobs {

using namespace std::chrono_literals;
using Arguments = std::vector<std::string>;

// Far more than anything here takes: a deadline, not an expectation of speed.
inline constexpr auto kSoon = std::chrono::seconds(30);

inline void demand(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

inline int node() {
  return divisi::Parallel::instance().node_id();
}
inline divisi::ParallelOptions workers(int n) {
  return {.n_parallel_workers = n, .log_level = "error"};
}

// Asks again and again. For things that give no sign: files, other processes.
bool eventually(const std::function<bool()>& holds, std::chrono::milliseconds deadline = kSoon);

// What listeners received, in order, from any thread.
template <class T>
class Gathered {
 public:
  void add(T value) {
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  bool wait_for(std::size_t count, std::chrono::milliseconds deadline = kSoon) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, deadline, [&] { return values_.size() >= count; });
  }
  std::vector<T> values() const {
    const std::lock_guard lock(mutex_);
    return values_;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<T> values_;
};

// A folder that goes with the test.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A note is there as a whole or not at all.
void note(const std::string& folder, std::string_view name, std::string_view text);
std::optional<std::string> read_note(const std::string& folder, std::string_view name);
// Throws if there is none before the deadline.
std::string wait_for_note(const std::string& folder, std::string_view name,
                          std::chrono::milliseconds deadline = kSoon);
// One line at the end of a file that several processes write to.
void append_line(const std::string& folder, std::string_view name, std::string_view line);
std::size_t count_lines(const std::string& folder, std::string_view name);

// Ports nobody listens on now, and which no outgoing connection takes meanwhile.
std::vector<int> free_ports(int n);
std::string loopback(int port);

// What a run that must fail said; an empty text if it did not.
struct Failure {
  std::string text;
  int exit_code = 0;
  int node = -1;
  bool usage = false;
};
Failure failure_of(const std::function<void()>& run);

// A launcher in a process of its own: this test program again, which calls the function that was
// registered under `name`. Its output goes to a file.
class Launched {
 public:
  Launched(const std::string& name, Arguments args);
  ~Launched();  // SIGKILL if it still runs
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) const;
  // The exit code, 128 + signal, or nothing at the deadline.
  std::optional<int> wait(std::chrono::milliseconds deadline = kSoon);
  std::string output() const;

 private:
  Folder folder_;
  pid_t pid_;
  std::optional<int> exit_code_;
};

using Launcher = int (*)(const Arguments&);
bool register_launcher(const std::string& name, Launcher launcher);

// Children of this process and socket files of ditask: a test that ends leaves as many as it found.
struct Leftovers {
  std::size_t processes = 0;
  std::size_t sockets = 0;
  bool operator==(const Leftovers&) const = default;
};
Leftovers leftovers(const std::string& socket_folder);

}  // namespace jobs

#define LAUNCHER(name)                                                                    \
  static int name(const jobs::Arguments& args);                                           \
  [[maybe_unused]] static const bool name##_known = jobs::register_launcher(#name, name); \
  static int name([[maybe_unused]] const jobs::Arguments& args)
