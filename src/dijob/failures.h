// Failures: which pod of which seat has failed, how often, and when the next may be made.
//
// The record is status.failures. A failure is entered with the pod's uid before the pod is
// replaced, so it counts once. The first replacement is made at once; from the second failure on
// the seat waits 10 s, doubled each time up to 10 min, and begins anew after a pod that ran that
// long.
#pragma once

#include "dijob/draft.h"
#include "dijob/pod.h"

#include <chrono>
#include <optional>
#include <string_view>

namespace divisi::dijob {

// Under which name creations of pods are entered that the server refused: together.
inline constexpr std::string_view kCreates = "(creates)";

class Failures {
 public:
  explicit Failures(Draft& status) : status_(status) {}

  // True if this failure was entered before. `uid` is empty for a pod that could not be made.
  bool known(std::string_view pod, std::string_view uid) const;
  // True if the seat has failed already since the job's last restart was counted.
  bool failed_in(std::string_view pod, int restart) const;
  void enter(std::string_view pod, std::string_view uid, const Pod* failed, WallTime now);
  // Enters what could not be made; each refusal is a new one.
  void enter_refused(std::string_view pod, WallTime now);

  // How long the seat must still stay empty; nothing: its pod may be made.
  std::optional<std::chrono::milliseconds> wait(std::string_view pod, WallTime now) const;

  void forget(std::string_view pod);

 private:
  const SeatFailures* find(std::string_view pod) const;

  Draft& status_;
};

}  // namespace divisi::dijob
