#include "dijob/seats.h"

#include <algorithm>
#include <cctype>

namespace divisi::dijob {
namespace {

bool starts_with_any_case(std::string_view text, std::string_view start) {
  return text.size() >= start.size() &&
         std::equal(start.begin(), start.end(), text.begin(), [](unsigned char a, unsigned char b) {
           return std::tolower(a) == std::tolower(b);
         });
}

}  // namespace

ExitAction exit_action(const Job& job, const Task& task, const Pod& pod) {
  if (!pod.exit_code) return ExitAction::kCount;
  for (const auto* const rules : {&task.exit_rules, &job.exit_rules}) {
    for (const ExitRule& rule : *rules) {
      if (std::ranges::find(rule.codes, *pod.exit_code) != rule.codes.end()) return rule.action;
    }
  }
  return ExitAction::kCount;
}

bool rejected(const Pod& pod) {
  // A node that shuts down, a drain, a preemption; an eviction for what it used is its own fault.
  if (pod.disrupted && pod.reason != "Evicted") return true;
  return pod.reason == "UnexpectedAdmissionError" || starts_with_any_case(pod.reason, "outof");
}

bool has_succeeded(const Draft& status, std::string_view pod) {
  return std::ranges::find(status->succeeded, pod) != status->succeeded.end();
}

}  // namespace divisi::dijob
