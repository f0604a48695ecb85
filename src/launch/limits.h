// Bounds on what a command line or a platform may ask for. Far above any real job; they exist so
// that a slip of the keyboard is a message and not a machine out of memory.
#pragma once

namespace divisi::launch {

inline constexpr int kMaxWorkers = 1024;  // processes of one launcher
inline constexpr int kMaxNodeId = 1'000'000'000;
inline constexpr int kMaxNodes = 16384;  // nodes of a whole job
inline constexpr int kMaxLabels = 1024;

}  // namespace divisi::launch
