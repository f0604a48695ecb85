// RunJob: what is started, as plain data. make_job() decides everything that does not depend on
// the outside: ranks, labels, GPUs, and the exact ditask arguments of each worker (spec 6.9).
//
//   DIVISI_TRY(RunJob job, make_job(options, {.hosts = {"a", "b", "c"}}));
//   job.workers[1].arguments
//     // --package P --main m.main --parallel-workers 1 --protocol tcp --ports 50515
//     // --topology star --node-ids 1 --labels gpu --attach-to tcp://a:50515
//
// Worker k is one ditask with `parallel_workers` processes: a pod, a host, a Slurm task.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "run/options.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::run {

struct RunWorker {
  int rank = 0;
  std::string host{};  // as the others dial it
  bool gpu = false;
  std::vector<std::string> labels{};
  std::vector<std::string> arguments{};  // of ditask
  // Added to what the worker inherits. CUDA_VISIBLE_DEVICES is here off the cluster.
  std::vector<std::pair<std::string, std::string>> environment{};
};

struct RunJob {
  std::string name{};
  BackendKind backend = BackendKind::kLocal;
  RunOptions options{};
  std::string entry{};     // "module.function"; empty where a program stands behind --
  std::string package{};   // as the workers see it: an absolute path
  std::string manifest{};  // the text of a DIJob's file, which then says all that runs
  std::vector<RunWorker> workers{};
  std::vector<json::Value> objects{};  // of a manifest; then nothing is rendered
};

// What a backend knows of the place where the workers run.
struct Place {
  std::vector<std::string> hosts{};  // one a worker, as the others dial it
  std::string package{};             // the package there; empty: where it is here
  bool listen_on_host = false;       // --address HOST: several workers share a machine
  bool visible_devices = true;       // GPUs by CUDA_VISIBLE_DEVICES; in a cluster by resources
  // Those that may be used there, for worker 0, 1...: beyond them a worker has none. Nothing: 0,
  // 1...
  std::optional<std::vector<std::string>> devices{};
};

// `entry` is that of the package ("m.main"), or empty with a command.
Result<RunJob> make_job(const RunOptions& options, BackendKind backend, const std::string& entry,
                        const Place& place);

// Where ranks come from the environment (DI_NODES and DI_RANK: Kubernetes, Slurm), workers of one
// kind share their arguments: those of make_job() without --node-ids, --attach-to and --address.
std::vector<std::string> shared_arguments(const RunJob& job, bool gpu);

// "train-x7k2p" of "my_module.train".
std::string make_up_name(std::string_view entry);

// One line for a POSIX shell: every word quoted where it must be.
std::string shell_quote(std::string_view word);
std::string shell_line(const std::vector<std::string>& words);

// The job as a document: what --dry-run prints for backends that have no manifests of their own.
json::Value job_document(const RunJob& job);

}  // namespace divisi::run
