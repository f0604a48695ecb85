// Whether the exchangers have work on this node.
#pragma once

#include "divisi/task.h"

#include <string_view>

namespace divisi::runtime {

// In a job, which tasks see by their labels (those of tests too).
bool in_job(const Task& owner);

// False without a job or a role (with a warning): the middleware `name` is void then. Several
// roles at once are warned about.
bool has_exchange(const Task& owner, std::string_view name);

}  // namespace divisi::runtime
