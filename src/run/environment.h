// What the commands of this module share: the environment, and how a failure is told.
#pragma once

#include "base/status.h"
#include "launch/text.h"

#include <string_view>

namespace divisi::run {

launch::Environment process_environment();

// "program: message" on one line of stderr; the exit code: 2 for the caller's mistakes, else 125.
int complain(std::string_view program, const Status& status);

}  // namespace divisi::run
