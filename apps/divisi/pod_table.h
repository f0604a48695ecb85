// PodTable: the pods of a DIJob as the workers of a job's record, from what the cluster says of
// them. Any thread may use it.
#pragma once

#include "json/value.h"
#include "run/record.h"

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::apps {

class PodTable {
 public:
  // A pod as it is now; `removed`: it is gone, and not shown any longer, unless keep() was called.
  void see(const json::Value& pod, bool removed);
  // The job is at its end: what it had is what is shown.
  void keep();
  std::vector<run::WorkerRecord> workers() const;  // by rank
  int rank_of(std::string_view pod) const;         // 0 when there is none of that name

 private:
  struct Entry {
    run::WorkerRecord shown{};
    std::string uid{};
    int made_again = 0;  // after a failure
    bool gone = false;
  };
  mutable std::mutex mutex_;  // containers' threads ask for ranks
  std::map<std::string, Entry, std::less<>> pods_;
  bool keeps_ = false;
};

}  // namespace divisi::apps
