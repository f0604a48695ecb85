#include "dist_rl/janitor.h"

#include "base/log.h"
#include "dist_rl/shared_files.h"
#include "divisi/checkpoint.h"
#include "divisi/error.h"

#include <cstdio>
#include <filesystem>
#include <unistd.h>

namespace divisi::dist_rl {

Janitor::Janitor() : thread_([this] { work_on(); }) {}

Janitor::~Janitor() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Janitor::remove_file(std::string path) {
  give([path = std::move(path)] { ::unlink(path.c_str()); });
}

void Janitor::remove_folder(std::string path) {
  give([path = std::move(path)] {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) log::warning("{} cannot be removed: {}", path, error.message());
  });
}

void Janitor::write_text(std::string path, std::string text) {
  give([path = std::move(path), text = std::move(text)] {
    if (const Status status = make_folder_of(path); !status.ok()) {
      return log::warning("{}", status.message());
    }
    try {
      write_file_atomically(path, text);
    } catch (const Error& error) {
      log::warning("{}", error.what());
    }
  });
}

void Janitor::rename(std::string from, std::string to) {
  give([from = std::move(from), to = std::move(to)] {
    if (::access(from.c_str(), F_OK) == 0) std::rename(from.c_str(), to.c_str());
  });
}

void Janitor::give(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Janitor::work_on() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    next();
    lock.lock();
  }
}

}  // namespace divisi::dist_rl
