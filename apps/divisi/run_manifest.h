// divisi run job.yaml --backend local: a DIJob manifest on this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace divisi::apps {

struct ManifestRun {
  std::string file{};    // "-": standard input
  std::string folder{};  // for logs and volumes; empty: one of its own, removed at the end
};

// Until the job has ended; its exit code. 2 for a manifest that cannot run, 125 for what could not
// be started, 141 when nobody reads the output any more. Ctrl-C ends the job; a
// second one kills it.
int run_manifest(const ManifestRun& run);

// `arguments` of `divisi run`. Nothing when they name no manifest (FILE.yaml, FILE.yml or -).
std::optional<int> run_manifest_command(const std::vector<std::string>& arguments);

}  // namespace divisi::apps
