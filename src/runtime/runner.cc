#include "runtime/runner.h"

#include "runtime/supervisor.h"
#include "runtime/worker.h"

#include <filesystem>

namespace divisi::runtime {

Result<WorkerLost> parse_worker_lost(std::string_view text) {
  if (text == "fail") return WorkerLost::kFail;
  if (text == "ignore") return WorkerLost::kIgnore;
  if (text == "restart") return WorkerLost::kRestart;
  return failure(Code::kInvalid, "unknown worker_lost '{}': choose fail, ignore or restart", text);
}

RunResult run_workers(const RunnerOptions& options, const std::vector<WorkerConfig>& workers) {
  enter_worker_if_spawned();
  if (!options.log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.log_dir, error);
    if (error) {
      return {kExitUsage,
              make_status(Code::kInvalid, "making the log directory {}: {}", options.log_dir,
                          error.message()),
              -1,
              {}};
    }
  }
  Supervisor supervisor(options, workers);
  return supervisor.run();
}

}  // namespace divisi::runtime
