// One sender and many receivers, each a process: what bench_fanout drives, ours and libzmq's.
#pragma once

#include "endpoint.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace divisi::bench {

class FanoutHub {
 public:
  virtual ~FanoutHub() = default;

  // Returns when every leaf is connected and its interest is known.
  virtual void wait_for_leaves(int count) = 0;
  virtual void send(std::uint64_t number) = 0;
  virtual void flush() {}
};

// A leaf either listens or declines.
class FanoutLeaf {
 public:
  virtual ~FanoutLeaf() = default;

  // Declares the interest: every message from here on goes to the sink.
  virtual void listen(Sink sink) = 0;

  // Returns when the sink has said false.
  virtual void run() = 0;

  // Declares another interest, so that no message comes here.
  virtual void decline() = 0;
};

constexpr std::size_t kFanoutBytes = 64;

std::unique_ptr<FanoutHub> make_zmq_hub(const std::string& address);
std::unique_ptr<FanoutLeaf> make_zmq_leaf(const std::string& address);

std::unique_ptr<FanoutHub> make_ours_hub(const std::string& address);
std::unique_ptr<FanoutLeaf> make_ours_leaf(int index, const std::string& address);

}  // namespace divisi::bench
