// ListenerGate: between a listener and whoever takes away what it refers to.
#pragma once

#include "divisi/detail/listener.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace divisi::detail {

class ListenerGate {
 public:
  // False: closed, do not run. True: leave() follows.
  bool enter();
  void leave();
  // Nobody enters from now on; waits for those inside, other than the calling thread.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  bool closed_ = false;                  // guarded by mutex_, as the next
  std::vector<std::thread::id> inside_;  // mostly one: inline listeners run on several threads
};

// A listener that runs only while its gate is open.
std::unique_ptr<Listener> gated(std::unique_ptr<Listener> listener,
                                std::shared_ptr<ListenerGate> gate);

}  // namespace divisi::detail
