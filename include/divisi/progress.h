// How far the training is, for `kubectl get dijob -o wide`.
//
//   divisi::report_progress({.env_steps_per_second = 12'000, .episode_return = 187.5});
//
// In a pod of a DIJob the figures go to its di-server, at most every two seconds, the latest of
// each name; anywhere else nothing happens. Never waits for the network and never fails because of
// it. May be called from any thread.
#pragma once

#include "divisi/export.h"

#include <map>
#include <optional>
#include <string>

namespace divisi {

// What is known of a training. What is not given stays as it was reported last, here or by another
// process.
struct Progress {
  std::optional<double> env_steps_per_second = std::nullopt;  // steps of all environments
  std::optional<double> episode_return = std::nullopt;        // the newest mean
  std::optional<double> eta_seconds = std::nullopt;           // until the end of the run
  // At most 64 figures more, with names of at most 63 characters; else UsageError.
  std::map<std::string, double> extra = {};
  // True: of the job, which is what kubectl shows; one process should report these. False: of this
  // process only.
  bool whole_job = true;
};

// Figures that are not finite are left out.
DIVISI_API void report_progress(const Progress& progress);

}  // namespace divisi
