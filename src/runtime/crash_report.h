// What a crashing worker says before it dies: signal, node id, and where.
#pragma once

namespace divisi::runtime {

// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT print one line and a short backtrace to
// stderr, then kill the process as they would have. Signals that already have a handler (a
// sanitizer's, the user's) are left alone. Covers stack overflow of the calling thread.
void install_crash_report(int node_id);

// Covers stack overflow of this thread too, if the report was installed. Cheap after the first
// call.
void cover_thread_by_crash_report();

}  // namespace divisi::runtime
