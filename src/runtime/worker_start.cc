// Where a spawned worker begins: after all static constructors, in place of the user's main().
#include "base/log.h"
#include "divisi/export.h"
#include "io/process.h"
#include "runtime/crash_report.h"
#include "runtime/entry.h"
#include "runtime/exit_code.h"
#include "runtime/finish_watcher.h"
#include "runtime/worker.h"
#include "runtime/worker_channel.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <optional>
#include <sys/prctl.h>
#include <unistd.h>

namespace divisi::runtime {

namespace {

// What DIVISI_WORKER_FD says: "<configuration>,<channel>".
struct Inherited {
  io::Descriptor config;
  WorkerChannel channel;
};

// Takes the variable away, so that programs this worker starts are not taken for workers.
std::optional<Inherited> take_inherited() {
  const char* const text = std::getenv(kWorkerFdVariable);
  if (text == nullptr) return std::nullopt;
  int config = -1;
  int channel = -1;
  const int found = std::sscanf(text, "%d,%d", &config, &channel);
  ::unsetenv(kWorkerFdVariable);
  if (found != 2 || config <= STDERR_FILENO || channel <= STDERR_FILENO) return Inherited{};
  ::fcntl(config, F_SETFD, FD_CLOEXEC);
  ::fcntl(channel, F_SETFD, FD_CLOEXEC);
  return Inherited{io::Descriptor(config), WorkerChannel(io::Descriptor(channel))};
}

Result<WorkerConfig> read_config(io::Descriptor file) {
  if (!file) {
    return failure(Code::kInvalid, "{} does not name two descriptors", kWorkerFdVariable);
  }
  DIVISI_TRY(const std::string bytes, io::read_all(file.get()));
  return decode_worker_config(bytes);
}

int give_up(const WorkerChannel& channel, const Status& status) {
  // The launcher says it, once for all workers.
  if (channel) {
    log::debug("{}", status.message());
  } else {
    log::error("{}", status.message());
  }
  channel.send({WorkerReport::Kind::kUsage, kExitUsage, status.message()});
  return kExitUsage;
}

WorkerReport::Kind report_kind(WorkerOutcome::Kind kind) {
  switch (kind) {
    case WorkerOutcome::Kind::kDone: return WorkerReport::Kind::kDone;
    case WorkerOutcome::Kind::kFailed:
    case WorkerOutcome::Kind::kUndelivered: return WorkerReport::Kind::kFailed;
    case WorkerOutcome::Kind::kBindFailed: return WorkerReport::Kind::kBindFailed;
    case WorkerOutcome::Kind::kRefused: return WorkerReport::Kind::kRefused;
    case WorkerOutcome::Kind::kJoinTimeout: return WorkerReport::Kind::kJoinTimeout;
    case WorkerOutcome::Kind::kUsage: return WorkerReport::Kind::kUsage;
  }
  return WorkerReport::Kind::kFailed;
}

// The launcher was killed: nobody else would remove our socket file and end what we have started.
// A sibling may have been killed before it, so its file goes, too.
[[noreturn]] void end_orphan(const WorkerConfig& config) {
  const std::string path = ipc_path(config.listen);
  const std::string suffix = fmt::format("_{}.ipc", config.local_id);
  if (!path.empty()) ::unlink(path.c_str());
  if (path.ends_with(suffix)) {
    const std::string stem = path.substr(0, path.size() - suffix.size());
    for (int i = 0; i < config.n_workers; ++i) ::unlink(fmt::format("{}_{}.ipc", stem, i).c_str());
  }
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
  ::_exit(kExitMainFailed);
}

int worker_main(Inherited inherited, const ResolveMain& resolve) {
  const WorkerChannel channel = std::move(inherited.channel);
  const auto config = read_config(std::move(inherited.config));
  if (!config) return give_up(channel, config.error());

  // Into a pipe stdio would keep 4 KiB back, and a crash would swallow them.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  log::set_identity(config->job_id, config->node_id);
  log::set_json(config->log_json);
  if (const auto level = log::parse_level(config->log_level)) log::set_level(*level);
  install_crash_report(config->node_id);

  const auto main = resolve(config->entry);
  if (!main) return give_up(channel, main.error());

  const WorkerHooks& hooks = worker_hooks();
  const FinishWatcher watcher({
      .on_finish =
          [&hooks](int) {
            if (hooks.request_finish) hooks.request_finish();
          },
      .on_peer_died = hooks.peer_died,
      .channel = &channel,
      .on_orphaned = [&config] { end_orphan(*config); },
  });
  // Until here a launcher's death was ours at once; from here on we take our socket file with us.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const WorkerOutcome outcome = run_worker(
      *config, *main, [&] { channel.send({WorkerReport::Kind::kJoined, 0, {}}); },
      [&](std::chrono::milliseconds time) { return watcher.finish_within(time); });
  if (outcome.kind == WorkerOutcome::Kind::kFailed) {
    log::error("main failed: {}", outcome.text);
  } else if (outcome.kind != WorkerOutcome::Kind::kDone) {
    log::error("{}", outcome.text);
  }
  channel.send({report_kind(outcome.kind), outcome.exit_code, outcome.text});
  return outcome.exit_code;
}

Result<MainFunction> resolve_native(const EntryRef& ref) {
  DIVISI_TRY(Entry entry, resolve_entry(ref));
  return std::move(entry.call);
}

int worker_in_place_of_main(int, char**, char**) {
  return run_spawned_worker(resolve_native);
}

}  // namespace

bool is_spawned_worker() {
  return std::getenv(kWorkerFdVariable) != nullptr;
}

int run_spawned_worker(const ResolveMain& resolve) {
  auto inherited = take_inherited();
  return worker_main(inherited ? *std::move(inherited) : Inherited{}, resolve);
}

void enter_worker_if_spawned() {
  if (is_spawned_worker()) std::exit(run_spawned_worker(resolve_native));
}

}  // namespace divisi::runtime

// The C library calls main() from here, and the constructors before it. A program that links
// libdivisi finds this definition first; one that only loads it later never comes here.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name
extern "C" DIVISI_API int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv,
                                            void (*init)(), void (*fini)(), void (*rtld_fini)(),
                                            void* stack_end) {
  using Start =
      int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto next = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(
      divisi::runtime::is_spawned_worker() ? divisi::runtime::worker_in_place_of_main : main, argc,
      argv, init, fini, rtld_fini, stack_end);
}
