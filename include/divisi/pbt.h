// Population-based training: several trainings side by side, in segments; after each segment the
// worst go on from a checkpoint of one of the best, with other settings near to its.
//
//   Pbt pbt(spaces, {.population = 8, .generations = 20, .maximize = true});
//   while (!pbt.done()) {
//     const std::optional<PbtSegment> segment = pbt.ask();   // nothing: all wait for others
//     pbt.tell(segment->id, train(segment->values, checkpoint_of(segment->parent)));
//   }
#pragma once

#include "divisi/export.h"
#include "divisi/sampler.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace divisi::tune {

// For Pbt.
struct PbtOptions {
  std::int64_t population = 8;    // trainings side by side, 2 to 100,000
  std::int64_t generations = 10;  // segments of each, from 1
  bool maximize = false;          // whether larger values are better
  double quantile = 0.25;         // the worst of so many copy the best of so many; at most 0.5
  double resample = 0.25;         // how likely a copied setting is drawn anew, not moved a little
  std::uint64_t seed = 0;         // of everything random
};

// A segment of a training that is to be run.
struct PbtSegment {
  std::uint64_t id = 0;         // from 1, in the order of ask()
  std::int64_t member = 0;      // which training, from 0
  std::int64_t generation = 0;  // which segment of it, from 0
  std::vector<double> values;   // its settings, as Sample has them
  // The segment whose checkpoint it goes on from; 0: from the beginning.
  std::uint64_t parent = 0;
};

// A segment of an earlier run of the same population, for Pbt::adopt().
struct PbtPast {
  PbtSegment segment = {};           // as ask() gave it
  bool ended = false;                // false: it is to be run again, and told
  std::optional<double> value = {};  // of one that ended well
};

// The population. Members do not wait for each other: a segment that ends is compared with the last
// segment of each of the others. Any thread may call; calls run one at a time. What it does depends
// on the seed and on the order of calls only.
class DIVISI_API Pbt {
 public:
  // Throws UsageError: options out of range.
  Pbt(std::vector<Space> spaces, const PbtOptions& options);
  Pbt(Pbt&&) noexcept;
  Pbt& operator=(Pbt&&) noexcept;
  ~Pbt();

  // The next segment; nothing while all members run or when all are done.
  std::optional<PbtSegment> ask();
  // The end of a segment with its value; one that is not finite is a failure, and the member copies
  // another one or begins anew. Throws UsageError: an id that does not run.
  void tell(std::uint64_t id, double value);
  // Takes up a population that was stopped: all segments that ask() gave so far, in their order.
  // Before the first ask(). What follows depends on the seed and on these. Throws UsageError: they
  // are not segments of one population with these options.
  void adopt(const std::vector<PbtPast>& past);
  // Whether all segments were run.
  bool done() const;
  // The segments whose checkpoints may still be needed, rising.
  std::vector<std::uint64_t> needed() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi::tune
