// divisi-report: runs the program of a trial in a pod and posts its reports and its result to
// di-server.
//
//   divisi-report [--patience SECONDS] PROGRAM ARGUMENTS...
//
// Ends as the program does: with its exit code, or with 128 and the number of its signal. SIGTERM
// and SIGINT are passed on to it. Outside of a trial of a DIJob it says so and reports nothing.
// What cannot be posted never changes how the program ends; after its end posts are tried for
// `patience` seconds (60).
#pragma once

#include "divisi/export.h"

namespace divisi::trial_report {

DIVISI_API int report_main(int argc, char** argv);

}  // namespace divisi::trial_report
