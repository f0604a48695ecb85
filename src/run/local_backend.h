// Jobs as processes of this machine: one ditask a worker, on loopback addresses.
#pragma once

#include "run/backend.h"

#include <memory>

namespace divisi::run {

std::unique_ptr<Backend> make_local_backend();

}  // namespace divisi::run
