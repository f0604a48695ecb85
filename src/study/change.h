// One change of a study: what is stored, and all that is stored.
#pragma once

#include "divisi/study.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::tune {

// Stored as numbers: new ones go to the end.
enum class ChangeKind {
  kWorker = 1,  // somebody begins to work: text_a is a WorkerIdentity
  kBeat,        // the worker lives
  kLeave,       // it works no more
  kSpace,       // text_a is what is searched from now on
  kAdd,         // a trial that waits: numbers are its raw values, text_a its configuration
  kAsk,         // a trial of the search, which `worker` runs: the same fields
  kStart,       // `worker` runs a trial that waited, or that its worker left behind
  kTry,         // count is the number of the try
  kReport,      // numbers are (step, value)
  kTell,      // the end: state, count (tries), numbers, violation, text_a returned, text_b metrics,
              // text_c error
  kGiveBack,  // the trial waits
};

struct Change {
  std::uint64_t number = 0;  // rises from change to change; the log gives it
  ChangeKind kind = ChangeKind::kBeat;
  std::uint64_t trial = 0;  // 0: none
  std::uint64_t worker = 0;
  double time = 0;  // seconds since 1970
  TrialState state = TrialState::kOk;
  int count = 0;
  std::vector<double> numbers = {};
  double violation = 0;
  std::string text_a = {};
  std::string text_b = {};
  std::string text_c = {};
};

// Seconds since 1970.
double wall_clock();

}  // namespace divisi::tune
