// ditask: starts the workers of a job on this host (docs: ditask --help).
#pragma once

#include "divisi/export.h"

namespace divisi::launch {

// The whole program. Errors are one line "ditask: ..." on stderr and the exit code of spec 6.7.
DIVISI_API int ditask_main(int argc, char** argv);

}  // namespace divisi::launch
