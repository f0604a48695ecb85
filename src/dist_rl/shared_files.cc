#include "dist_rl/shared_files.h"

#include "divisi/error.h"
#include "rl/saved_file.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::dist_rl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPolicyKind = "dist policy";
constexpr std::string_view kDataKind = "dist data";
constexpr std::string_view kCheckpointKind = "dist checkpoint";
constexpr std::size_t kMostName = 200;  // file systems allow 255

Result<std::string> joined(const std::string& root, std::initializer_list<std::string_view> names) {
  std::string path = root;
  for (const std::string_view name : names) {
    if (!is_plain_name(name)) {
      return failure(Code::kInvalid, "'{}' is no name of a file in the shared path",
                     name.substr(0, 80));
    }
    path += '/';
    path += name;
  }
  return path;
}

// Errors of rl are exceptions; here they become a Status.
template <class T>
Result<T> guarded(const std::function<T()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    return failure(error.code(), "{}", error.what());
  }
}

// Into a temporary name, then under its own, without waiting for the disk.
template <class... A>
Status write_whole(const std::string& path, std::string_view kind, const A&... values) {
  DIVISI_TRY_STATUS(make_folder_of(path));
  const fs::path target(path);
  const std::string temporary = fmt::format("{}/.tmp.{}.{}", target.parent_path().string(),
                                            ::getpid(), target.filename().string());
  try {
    rl::write_file(temporary, kind, values...);
  } catch (const Error& error) {
    ::unlink(temporary.c_str());
    return {Code::kUnavailable, error.what()};
  }
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const int reason = errno;
  ::unlink(temporary.c_str());
  return make_status(Code::kUnavailable, "writing {}: {}", path, errno_text(reason));
}

// Only plain files: a link could lead out of the shared path.
bool is_link(const std::string& path) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(path, error));
}

Status refuse_link(const std::string& path) {
  if (!is_link(path)) return {};
  return make_status(Code::kInvalid, "{}: a link is not followed out of the shared path", path);
}

}  // namespace

bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > kMostName || name.front() == '.') return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  });
}

Result<std::string> data_path(const std::string& root, std::string_view job,
                              std::string_view buffer_id, std::string_view data_id) {
  return joined(root, {job, buffer_id, data_id});
}

Result<std::string> policy_path(const std::string& root, std::string_view job,
                                std::string_view name) {
  return joined(root, {job, name});
}

Status write_policy(const std::string& path, std::int64_t train_iter, const rl::QNetwork& network) {
  return write_whole(path, kPolicyKind, train_iter, network.state());
}

Result<std::optional<PolicyFile>> read_policy(const std::string& path) {
  if (Status status = refuse_link(path); !status.ok()) return failure(std::move(status));
  return guarded<std::optional<PolicyFile>>([&]() -> std::optional<PolicyFile> {
    auto read = rl::load_file<std::int64_t, rl::StateDict>(path, kPolicyKind);
    if (!read) return std::nullopt;
    return PolicyFile{std::get<0>(*read), std::move(std::get<1>(*read))};
  });
}

Status write_data(const std::string& path, const rl::TransitionBatch& batch) {
  return write_whole(path, kDataKind, rl::to_wire(batch), std::int64_t{batch.size});
}

Result<std::optional<rl::Transitions>> read_data(const std::string& path, int observation_size,
                                                 int action_count) {
  if (Status status = refuse_link(path); !status.ok()) return failure(std::move(status));
  return guarded<std::optional<rl::Transitions>>([&]() -> std::optional<rl::Transitions> {
    auto read = rl::load_file<rl::Transitions, std::int64_t>(path, kDataKind);
    if (!read) return std::nullopt;
    rl::Transitions& transitions = std::get<0>(*read);
    (void)rl::checked_rows(transitions, observation_size, action_count);
    return std::move(transitions);
  });
}

Status write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  DIVISI_TRY_STATUS(make_folder_of(path));
  try {
    rl::save_file(path, kCheckpointKind, checkpoint.shape, checkpoint.state);
  } catch (const Error& error) {
    return {Code::kUnavailable, error.what()};
  }
  return {};
}

Result<std::optional<Checkpoint>> read_checkpoint(const std::string& path) {
  if (Status status = refuse_link(path); !status.ok()) return failure(std::move(status));
  return guarded<std::optional<Checkpoint>>([&]() -> std::optional<Checkpoint> {
    auto read = rl::load_file<std::string, rl::StateDict>(path, kCheckpointKind);
    if (!read) return std::nullopt;
    return Checkpoint{std::move(std::get<0>(*read)), std::move(std::get<1>(*read))};
  });
}

std::uint64_t file_version(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return 0;
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    return (a ^ (b + 0x9e3779b97f4a7c15U + (a << 6U) + (a >> 2U)));
  };
  std::uint64_t version = mix(static_cast<std::uint64_t>(facts.st_ino),
                              static_cast<std::uint64_t>(facts.st_mtim.tv_sec));
  version = mix(version, static_cast<std::uint64_t>(facts.st_mtim.tv_nsec));
  return version == 0 ? 1 : version;
}

Status make_folder_of(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (!error) return {};
  return make_status(Code::kUnavailable,
                     "the folder of {} cannot be made: {}; is the volume mounted?", path,
                     error.message());
}

}  // namespace divisi::dist_rl
