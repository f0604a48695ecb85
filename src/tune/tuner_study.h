// The study of a Tuner's run: where its trials come from and go to.
#pragma once

#include "divisi/study.h"
#include "divisi/tune.h"

#include <optional>
#include <string>
#include <vector>

namespace divisi::tune {

// What the tuner was told about its study.
struct TunerStorage {
  std::string url;
  std::string name;
  bool resume = false;
};

class TunerStudy {
 public:
  // Throws what Study::open throws. `seed`: of the algorithm, nothing if it has none.
  TunerStudy(const TunerStorage& storage, const Structure& structure, const std::string& algorithm,
             std::vector<bool> maximize, std::vector<std::string> targets,
             std::optional<std::uint64_t> seed);

  // The seed that the study was begun with.
  std::optional<std::uint64_t> seed() const;
  std::optional<Sample> ask(Sampler& sampler);
  void tell(const Trial& trial);
  // The best trials of all processes, at most so many; those of `own` as they are there.
  std::vector<Trial> ranked(const std::vector<Trial>& own, std::size_t capacity);
  // Those of all processes that no other one dominates, as ranked() has seen them.
  std::vector<Trial> pareto() const;

 private:
  std::vector<Direction> directions() const;

  const Structure& structure_;
  Study study_;
};

}  // namespace divisi::tune
