// Which processes belong to a trial, also those that left its process group.
//
// A trial's processes carry a token in their environment. This process is made the one that
// orphans are re-parented to, so whatever a trial leaves behind becomes a child of this process,
// where it is found and ended.
#pragma once

#include "base/status.h"

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace divisi::local_trials {

// The variable with the token: the number of the process that started the trial, '-', a counter.
inline constexpr std::string_view kTokenVariable = "DIVISI_TRIAL_TOKEN";

// From now on orphans below this process become its children (PR_SET_CHILD_SUBREAPER).
Status adopt_orphans();

// Direct children of a process, of all its threads; empty when there is no such process.
std::vector<pid_t> children_of(pid_t pid);
// All processes below it, parents before children.
std::vector<pid_t> descendants_of(pid_t pid);
// Kills processes of trials whose LocalTrials died without ending them (SIGKILL): those that carry
// the token of a process that is gone, and an environment entry that begins with `entry_prefix`.
// How many there were.
int end_leftovers(std::string_view entry_prefix);
// Whether NAME=VALUE is in the environment that the process was started with.
bool has_environment(pid_t pid, std::string_view entry);

}  // namespace divisi::local_trials
