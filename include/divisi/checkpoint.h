// Files that are whole or not there, checkpoints made of them, and middleware that end a run.
//
//   task.use(divisi::ckpt_saver([&](const std::string& path) { policy.save(path); }, exp_name,
//                               {.train_freq = 1000}));
//   task.use(divisi::termination_checker({.max_train_iter = 10'000}));
//   task.use(divisi::final_ctx_saver(exp_name));
//
// How long an iteration takes says epoch_timer (step_timer.h). Middleware here look at the fields
// env_step, train_iter, eval_value and so on of the context by their names, so they work with
// OnlineRLContext, OfflineRLContext and contexts of your own that have such fields
// (std::int64_t for counters, double for values).
#pragma once

#include "divisi/export.h"
#include "divisi/middleware.h"
#include "divisi/task.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace divisi {

// Writes the file so that readers, and whoever comes after a crash, find the old contents or the
// new: into a temporary file of the same folder, to the disk (fsync), then under its name. Throws
// Error with the path and the text of errno (no such folder, no permission, disk full, ...); then
// the old file is as it was, and the temporary one is gone.
DIVISI_API void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
DIVISI_API void write_file_atomically(const std::string& path, std::string_view text);

// The same for a file that `write` makes: it gets the path of the temporary file. What it throws
// is passed on.
DIVISI_API void write_file_atomically(const std::string& path,
                                      const std::function<void(const std::string&)>& write);

// When ckpt_saver saves.
struct CkptSaverOptions {
  // Every so many train_iter, and once at 0; default: never.
  std::optional<std::int64_t> train_freq = {};
  bool save_finish = true;  // in the iteration that sees the task's `finish`
};

// Saves to `<save_dir>/ckpt`, or to `save_dir` itself if its last part is `ckpt`; made on first
// use:
//
//   iteration_<train_iter>.pth.tar   as CkptSaverOptions::train_freq says
//   eval.pth.tar                     whenever eval_value is the best so far
//   final.pth.tar                    when the task finishes
//
// `save` writes the file whose path it gets, in whatever format; the file then takes its name as
// write_file_atomically does it. A run that ends by max_step sets `finish` after its last
// iteration, so it leaves no final.pth.tar (termination_checker before this middleware does).
//
// In a job active for learners and evaluators only; void elsewhere.
DIVISI_API Middleware ckpt_saver(std::function<void(const std::string& path)> save,
                                 const std::string& save_dir, CkptSaverOptions options = {},
                                 Task& owner = task);

// The checkpoint of ckpt_saver to go on with: iteration_<n> with the highest n, or final.pth.tar if
// that was written later. Nothing when there is neither.
DIVISI_API std::optional<std::string> latest_checkpoint(const std::string& save_dir);

// A run ends when a counter is beyond its limit. Default: no limits.
struct TerminationOptions {
  std::optional<std::int64_t> max_env_step = {};    // of env_step; looked at first
  std::optional<std::int64_t> max_train_iter = {};  // of train_iter
};

// Sets `finish` when a counter is greater than its limit. In every node that uses it.
DIVISI_API Middleware termination_checker(TerminationOptions options, Task& owner = task);

// As TerminationOptions, for several ranks.
struct DdpTerminationOptions {
  std::optional<std::int64_t> max_env_step = {};    // of env_step of rank 0; looked at first
  std::optional<std::int64_t> max_train_iter = {};  // of train_iter of rank 0
  int rank = 0;                                     // of this node; exactly one has 0
  int n_ranks = 0;                                  // default: every node that is linked
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // for a word of the other ranks
};

// As termination_checker, for nodes that go in step: rank 0 decides in each iteration, by the event
// `ddp_termination` (number of the call, finish), and the others take over the word for their own
// iteration, so all of them finish in the same one. The last iteration is also a barrier (event
// `ddp_termination_ack`, with the rank, and the word once more): rank 0 waits for the others, and
// warns of those that do not come. Throws TimeoutError in the others when rank 0 says nothing.
// Without a job it is a termination_checker.
DIVISI_API Middleware ddp_termination_checker(DdpTerminationOptions options, Task& owner = task);

// When the task finishes, writes `<dir>/result.json` with total_step, train_iter, last_eval_iter,
// eval_value (the last one), env_step, env_episode and trained_env_step, as far as the context has
// them; a number that JSON has not is null. DI-engine, and the Python package, write a pickle
// (result.pkl) with the same names.
DIVISI_API Middleware final_ctx_saver(const std::string& dir, Task& owner = task);

}  // namespace divisi
