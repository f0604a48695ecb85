// Who works on a study, and whether it still lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace divisi::tune {

struct WorkerIdentity {
  std::string host;          // for people
  std::string machine;       // the boot of the kernel and the process ids that are seen there
  std::int64_t process = 0;  // its id there
  std::int64_t begun = 0;    // when it was started, in ticks since boot: ids are used again
  double heartbeat = 15;     // seconds

  // Of this process.
  static WorkerIdentity own(double heartbeat);
  // As JSON, and back; what is missing or wrong has its default.
  std::string text() const;
  static WorkerIdentity parse(std::string_view text);

  // `seen`: when it last wrote; `now`: both in seconds since 1970.
  bool lives(double seen, double now) const;
};

}  // namespace divisi::tune
