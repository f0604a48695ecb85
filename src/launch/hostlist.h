// Slurm's compressed lists: "n[08-10,12],login" and "2(x3),1". Pure functions of text.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::launch {

// No job of one launcher has more hosts or tasks; a longer list is a mistake or an attack.
inline constexpr std::size_t kMaxHosts = 65536;

// "a[1-2],b[3-4]" -> a1, a2, b3, b4; the padding of "[08-10]" is kept; several bracket groups
// in one name multiply ("r[1-2]n[1-2]"). Fails on anything that is not of this form and when
// the result would have more than kMaxHosts names.
Result<std::vector<std::string>> expand_host_list(std::string_view text);

// "2(x3),1" -> 2, 2, 2, 1: tasks of each host, in the order of the host list.
Result<std::vector<int>> expand_task_counts(std::string_view text);

}  // namespace divisi::launch
