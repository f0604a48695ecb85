#include "trial_report/trial_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <utility>

namespace divisi::trial_report {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 6> kNames{"result.json",    "result.msgpack", "result.pkl",
                                            "hpo/result.pkl", "hpo/result",     "hpo/results"};
// Of the metrics file, in one go: a program that reports faster is read in several.
constexpr std::size_t kMaxRead = std::size_t{1} << 20;

std::optional<struct stat> stat_of(const fs::path& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return found;
}

std::array<std::int64_t, 4> signature_of(const struct stat& file) {
  return {static_cast<std::int64_t>(file.st_ino), static_cast<std::int64_t>(file.st_size),
          static_cast<std::int64_t>(file.st_mtim.tv_sec),
          static_cast<std::int64_t>(file.st_mtim.tv_nsec)};
}

// Folders with a date behind the name of the task.
void add_dated(std::vector<fs::path>& folders, const fs::path& parent, const std::string& task) {
  std::vector<fs::path> dated;
  std::error_code none;
  for (fs::directory_iterator entry(parent, none), end; !none && entry != end;
       entry.increment(none)) {
    if (entry->path().filename().string().starts_with(task + "_")) dated.push_back(entry->path());
  }
  std::ranges::sort(dated);
  folders.insert(folders.end(), dated.begin(), dated.end());
}

}  // namespace

TrialFiles::TrialFiles(TrialPlace place) : place_(std::move(place)) {
  for (const fs::path& path : candidates()) {
    if (const auto file = stat_of(path)) old_[path.string()] = signature_of(*file);
  }
  if (const auto file = stat_of(place_.metrics_file)) {
    read_ = static_cast<std::size_t>(file->st_size);  // of an earlier attempt of the pod
  }
}

std::vector<fs::path> TrialFiles::candidates() const {
  const fs::path remote = fs::path(place_.result_file).parent_path();
  std::vector<fs::path> folders{remote / place_.project / place_.task, remote / place_.task};
  add_dated(folders, remote / place_.project, place_.task);
  add_dated(folders, remote, place_.task);
  std::vector<fs::path> paths{place_.result_file};
  for (const fs::path& folder : folders) {
    for (const char* name : kNames) paths.push_back(folder / name);
  }
  return paths;
}

bool TrialFiles::is_new(const fs::path& path) const {
  const auto file = stat_of(path);
  if (!file) return false;
  const auto known = old_.find(path.string());
  return known == old_.end() || known->second != signature_of(*file);
}

std::optional<FoundResult> TrialFiles::find_result(std::size_t most) const {
  for (const fs::path& path : candidates()) {
    if (!is_new(path)) continue;
    FoundResult found;
    found.name = path == fs::path(place_.result_file) ? kNames[0] : path.filename().string();
    std::error_code none;
    found.size = fs::file_size(path, none);
    if (none) continue;
    if (found.size > most) return found;
    std::ifstream file(path, std::ios::binary);
    found.bytes.assign(std::istreambuf_iterator<char>(file), {});
    found.size = found.bytes.size();
    return found;
  }
  return std::nullopt;
}

std::vector<std::string> TrialFiles::take_lines() {
  std::vector<std::string> lines;
  const auto now = stat_of(place_.metrics_file);
  if (!now) return lines;  // not there, or a pipe, which would wait for a writer
  if (static_cast<std::size_t>(now->st_size) < read_) {
    read_ = 0;  // the program began it anew
    partial_.clear();
    skipping_ = false;
  }
  std::ifstream file(place_.metrics_file, std::ios::binary);
  if (!file.seekg(static_cast<std::streamoff>(read_))) return lines;
  std::string added;
  do {  // a long line may take several goes
    added.resize(kMaxRead);
    file.read(added.data(), static_cast<std::streamsize>(added.size()));
    added.resize(static_cast<std::size_t>(file.gcount()));
    read_ += added.size();
    split(added, lines);
  } while (lines.empty() && !added.empty());
  return lines;
}

void TrialFiles::split(const std::string& added, std::vector<std::string>& lines) {
  for (const char c : added) {
    if (c != '\n') {
      skipping_ = skipping_ || partial_.size() >= kMaxLine;
      if (!skipping_) partial_.push_back(c);
      continue;
    }
    if (std::exchange(skipping_, false)) {
      ++overlong_;
    } else if (!partial_.empty()) {
      lines.push_back(std::move(partial_));
    }
    partial_.clear();
  }
}

}  // namespace divisi::trial_report
