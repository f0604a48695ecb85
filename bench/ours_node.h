// This process as a node of a job, for the benchmarks: up when the constructor returns, down
// after the destructor. Uses the public API only.
#pragma once

#include "divisi/parallel.h"

#include <future>
#include <string>
#include <thread>
#include <vector>

namespace divisi::bench {

struct OursNodeOptions {
  int id = 0;
  bool tcp = false;
  std::string run = {};  // the same for all nodes of one run, different from every other run
  // Ids of nodes that are up or coming up; the constructor waits for the links to them.
  std::vector<int> dial = {};
};

class OursNode {
 public:
  explicit OursNode(OursNodeOptions options);
  ~OursNode();
  OursNode(const OursNode&) = delete;
  OursNode& operator=(const OursNode&) = delete;

  Parallel& router() { return Parallel::instance(); }

 private:
  std::promise<void> up_;
  std::promise<void> down_;
  std::thread runner_;  // main of the node; the benchmark goes on in its own threads
};

// Removes what nodes of `run` that were killed have left behind.
void remove_traces(const std::string& run, int id);

}  // namespace divisi::bench
