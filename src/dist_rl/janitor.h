// Janitor: writes and deletes files of the shared path on a thread of its own, so that a slow
// volume holds up no loop. Work is done in the order it was given; the destructor finishes it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace divisi::dist_rl {

class Janitor {
 public:
  Janitor();
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  void remove_file(std::string path);
  void remove_folder(std::string path);
  // Whole or not at all; a failure is logged.
  void write_text(std::string path, std::string text);
  void rename(std::string from, std::string to);

 private:
  void give(std::function<void()> work);
  void work_on();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;  // guarded by mutex_
  bool closed_ = false;                     // guarded by mutex_
  std::thread thread_;
};

}  // namespace divisi::dist_rl
