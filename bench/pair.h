// Processes of one benchmark, and a private line to each, beside the transport under test.
#pragma once

#include "endpoint.h"

#include <chrono>
#include <functional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace divisi::bench {

// One end of the private line: plain values, blocking.
class Control {
 public:
  explicit Control(int fd) : fd_(fd) {}

  template <class T>
  void put(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (::write(fd_, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) {
      fail("control write");
    }
  }

  template <class T>
  T get() const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    if (::recv(fd_, &value, sizeof value, MSG_WAITALL) != static_cast<ssize_t>(sizeof value)) {
      fail("the other process ended");
    }
    return value;
  }

  // True as soon as there is something to get (or the other process has ended).
  bool waits_for(std::chrono::milliseconds time) const {
    pollfd poll{fd_, POLLIN, 0};
    return ::poll(&poll, 1, static_cast<int>(time.count())) > 0;
  }

  void close() { ::close(fd_); }

 private:
  int fd_;
};

// Runs `work`; an exception becomes one line on stderr and exit code 1.
int guarded(const char* who, const std::function<void()>& work);

struct Child {
  pid_t pid;
  Control control;
};

// Forks a process that runs `role` over its end of a private line and then exits; it dies with
// its parent. To be called before any library is touched.
Child fork_role(const std::function<void(const Control& parent)>& role);

// Waits for the children (after SIGKILL if `kill_first`); 0 if all ended well.
int reap(const std::vector<pid_t>& children, bool kill_first);

using Role = std::function<void(Endpoint& endpoint, const Control& control)>;

// Forks, opens one endpoint of `transport` in each process, passes one message there and back (so
// that connecting does not count), and runs the two roles: the server's here, the client's in the
// child. Returns the exit code for main().
int run_pair(const std::string& transport, std::size_t size, const Role& server,
             const Role& client);

}  // namespace divisi::bench
