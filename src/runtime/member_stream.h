// MemberStream: the di-server's lists of who is in the job, one after the other, for as long as the
// object lives. A server that is away, refuses or breaks off is asked again, after longer and
// longer pauses; nobody hears of it but the debug log. Loop only.
#pragma once

#include "io/reactor.h"
#include "runtime/job_server.h"
#include "runtime/roster.h"

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace divisi::runtime {

class MemberStream {
 public:
  struct Listener {
    std::function<void(const std::vector<Member>&)> on_members;
    std::function<void()> on_word;  // the server lives: anything it says, comments too
  };

  MemberStream(io::Reactor& reactor, JobServer server, Listener listener);
  ~MemberStream();
  MemberStream(const MemberStream&) = delete;
  MemberStream& operator=(const MemberStream&) = delete;

 private:
  class Reading;

  void connect();
  void ended(const Status& why);

  io::Reactor& reactor_;
  const JobServer server_;
  const Listener listener_;
  std::unique_ptr<http::Client> client_;
  std::unique_ptr<http::Call> call_;
  std::unique_ptr<io::Timer> again_;
  std::chrono::milliseconds pause_{0};
};

}  // namespace divisi::runtime
