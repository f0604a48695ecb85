// Numbered events, and what is said about those that arrived.
#pragma once

#include "acceptance/job.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace chaos {

using jobs::demand;
using jobs::kSoon;
using namespace std::chrono_literals;

// True in the long form: DIVISI_SOAK=1.
bool soak();

// Listens to `number` (sender, life, n, bytes) and holds each sender to 0, 1, 2, ... With `gaps`
// numbers may be missing, but never come twice or out of order.
class Receiver {
 public:
  explicit Receiver(bool gaps = false);
  // Throws what is wrong, also what was wrong before.
  void wait_for(int sender, int count, int life = 0,
                std::chrono::milliseconds deadline = 2 * kSoon);
  int count(int sender, int life = 0) const;
  void check() const;

 private:
  struct Seen {
    explicit Seen(bool may_miss) : gaps(may_miss) {}
    void take(int sender, int life, int n, std::size_t bytes);

    const bool gaps;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<int, int>, int> counts;  // by sender and life
    std::map<std::pair<int, int>, int> last;
    std::string wrong;
  };
  const std::shared_ptr<Seen> seen_;
  divisi::Subscription numbers_;
};

// The n-th event of this node: most are small, some larger than a chunk of the wire.
void send_number(int n, int life = 0);
void send_number(int n, int life, std::size_t bytes);

// Waits until `count` peers have made their listeners: before a peer is ready it keeps what it
// cannot deliver, but no more than its queue takes, and misses reports about others.
void wait_until_ready(std::size_t count);

// How far a sender is, told to those who only see its notes.
class Progress {
 public:
  Progress(std::string folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}
  void note(int sent) const;
  int sent() const;
  // Waits until it is further than that. Throws at the deadline.
  void wait_beyond(int sent) const;
  // Waits until it gets no further: the sender is held up. Throws at the deadline.
  void wait_until_still() const;

 private:
  const std::string folder_;
  const std::string name_;
};

// What the router said about peers, "peer_lost 3" and so on, in order.
class PeerChanges {
 public:
  PeerChanges();
  void wait_for(const std::string& change, std::chrono::milliseconds deadline = kSoon);
  std::vector<std::string> all() { return changes_.values(); }

 private:
  jobs::Gathered<std::string> changes_;
  std::vector<divisi::Subscription> reports_;
};

// The counters of one peer; zeros if it is gone.
divisi::PeerCounters counters_of(int node);

}  // namespace chaos
