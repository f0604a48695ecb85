#include "local/sandbox.h"

#include "io/process.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

namespace divisi::local {
namespace {

namespace fs = std::filesystem;

// Made anew in every sandbox.
const std::set<std::string> kOwnFolders{"/proc", "/dev", "/tmp"};

void add(std::vector<std::string>& to, std::initializer_list<std::string> words) {
  to.insert(to.end(), words);
}

// Everything in `folder`, which is a tmpfs now, as it is on this machine.
Status bind_entries(std::vector<std::string>& to, const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (kOwnFolders.contains(path)) continue;
    std::error_code unreadable;
    if (entry.is_symlink(unreadable)) {
      const fs::path target = fs::read_symlink(entry.path(), unreadable);
      if (!unreadable) add(to, {"--symlink", target.string(), path});
    } else {
      add(to, {"--ro-bind-try", path, path});
    }
  }
  if (error) return make_status(Code::kUnavailable, "cannot read {}: {}", folder, error.message());
  return {};
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The folders that must be opened so that every one of `targets` can be made; parents first.
std::set<std::string> folders_to_open(const std::vector<std::string>& targets) {
  std::set<std::string> opened;
  for (const std::string& target : targets) {
    if (exists(target)) continue;
    fs::path parent = fs::path(target).parent_path();
    while (!exists(parent.string())) parent = parent.parent_path();
    const std::string path = parent.string();
    const std::string top = "/" + path.substr(1, path.find('/', 1) - 1);
    std::error_code ignored;  // it exists
    const fs::path real = fs::canonical(parent, ignored);
    if (path != "/" && !kOwnFolders.contains(top)) opened.insert(real.string());
  }
  return opened;
}

bool below_any(const std::string& path, const std::vector<Bind>& binds) {
  return std::ranges::any_of(
      binds, [&](const Bind& bind) { return path == bind.to || path.starts_with(bind.to + "/"); });
}

}  // namespace

Result<std::vector<std::string>> bubblewrap_arguments(const SandboxOptions& options) {
  std::vector<std::string> out{"--die-with-parent", "--unshare-pid", "--unshare-uts", "--hostname",
                               options.hostname,    "--clearenv",    "--tmpfs",       "/"};
  if (Status status = bind_entries(out, "/"); !status.ok()) return failure(std::move(status));
  add(out, {"--dev-bind", "/dev", "/dev", "--proc", "/proc"});

  // /var/run is a link on most machines: bwrap makes mount points only at real paths.
  std::vector<Bind> binds = options.binds;
  std::vector<std::string> targets;
  for (Bind& bind : binds) {
    std::error_code error;
    const fs::path target = fs::weakly_canonical(bind.to, error);
    if (error) {
      return failure(Code::kInvalid, "mountPath {} cannot be looked at: {}", bind.to,
                     error.message());
    }
    bind.to = target.string();
    targets.push_back(bind.to);
  }
  const bool makes_folder =
      !options.folder.empty() && !exists(options.folder) && !below_any(options.folder, binds);
  if (makes_folder) targets.push_back(options.folder);
  for (const std::string& folder : folders_to_open(targets)) {
    add(out, {"--tmpfs", folder});
    if (Status status = bind_entries(out, folder); !status.ok()) return failure(std::move(status));
  }
  for (const Bind& bind : binds) {
    add(out, {bind.read_only ? "--ro-bind" : "--bind", bind.from, bind.to});
  }
  if (makes_folder) add(out, {"--dir", options.folder});
  if (!options.folder.empty()) add(out, {"--chdir", options.folder});
  for (const auto& [name, value] : options.environment) add(out, {"--setenv", name, value});
  return out;
}

Result<std::string> find_bubblewrap() {
  auto tried = io::Process::spawn({.program = "bwrap",
                                   .arguments = {"--ro-bind", "/", "/", "--unshare-uts",
                                                 "--unshare-pid", "--proc", "/proc", "true"},
                                   .standard_input = io::Stdio::kNull,
                                   .standard_output = io::Stdio::kNull,
                                   .standard_error = io::Stdio::kPipe});
  if (!tried) {
    return failure(
        Code::kUnavailable,
        "cannot start bwrap ({}): pods without a cluster run in it; apt install bubblewrap",
        tried.error().message());
  }
  const auto text = io::read_all(tried->error().get());
  DIVISI_TRY(const io::ExitStatus status, tried->wait());
  if (status.ok()) return std::string("bwrap");
  std::string why = text ? *text : text.error().message();
  why = why.substr(0, why.find('\n'));
  return failure(Code::kUnavailable,
                 "this machine lets no sandbox start ({}): allow user namespaces "
                 "(sysctl kernel.unprivileged_userns_clone=1) or run as root",
                 why);
}

}  // namespace divisi::local
