// The socket between a launcher and one worker. The worker says how it is doing, the launcher says
// which of its siblings has died, and when to finish. One record is one packet; the end of the
// socket is the end of the other process.
#pragma once

#include "base/status.h"
#include "io/process.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace divisi::runtime {

struct WorkerReport {
  enum class Kind : std::uint8_t {
    kJoined,       // links are up, main starts
    kDone,         // main returned 0 (worker to launcher; `value` is the exit code)
    kFailed,       // main threw or returned something else
    kBindFailed,   //
    kRefused,      //
    kJoinTimeout,  //
    kUsage,        // no such entry, unreadable configuration
    kPeerDied,     // launcher to worker; `value` is the node id. `text`: where it listened, if it
                   // will not be started again. Who joins anew hears it of good ends, too
    kFinish,       // launcher to worker: leave the loop, please
  };
  Kind kind = Kind::kJoined;
  int value = 0;
  std::string text;
};

class WorkerChannel {
 public:
  // Launcher's end, worker's end.
  static Result<std::pair<WorkerChannel, WorkerChannel>> make_pair();

  WorkerChannel() = default;
  explicit WorkerChannel(io::Descriptor socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  void close() noexcept { socket_.reset(); }

  // Never blocks and never fails loudly: a process that is gone needs no report. Texts are cut at
  // 32 KiB.
  void send(const WorkerReport& report) const noexcept;

  // The next record; nullopt when there is none now. `ended` is set when none will come.
  std::optional<WorkerReport> receive(bool& ended) const;

 private:
  io::Descriptor socket_;
};

}  // namespace divisi::runtime
