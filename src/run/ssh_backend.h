// Jobs on hosts, one ditask each, by the system's ssh.
//
// First every host is asked for its version and gets what it lacks of the package; then a
// supervisor of this machine (local_supervisor.h) starts an ssh-worker (ssh_worker.h) a host, whose
// other end (ssh_host.h) starts the ditask. When a connection ends, its worker does.
#pragma once

#include "run/backend.h"

#include <memory>

namespace divisi::run {

std::unique_ptr<Backend> make_ssh_backend();

}  // namespace divisi::run
