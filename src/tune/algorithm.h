// What a Sampler runs: one algorithm, called by one thread at a time.
#pragma once

#include "base/status.h"
#include "divisi/sampler.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace divisi::tune {

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // The values of trial `id`; nothing when the search has ended, and then always.
  virtual std::optional<std::vector<double>> next(std::uint64_t id) = 0;
  // A trial whose point next() did not give here. If the search chose it elsewhere, what next()
  // gives afterwards is what it would have given there.
  virtual void adopt(std::uint64_t id, const std::vector<double>& values, Origin origin) = 0;
  // The end of a trial. If the state is kOk, values are there and finite.
  virtual void finish(std::uint64_t id, const Outcome& outcome) = 0;
  // How many values a trial must have; nothing: any number.
  virtual std::optional<std::size_t> objectives() const { return 1; }
};

Result<std::unique_ptr<Algorithm>> make_grid(const SearchSpace& space, const GridOptions& options);
Result<std::unique_ptr<Algorithm>> make_random(SearchSpace space, RandomOptions options);
Result<std::unique_ptr<Algorithm>> make_bayes(SearchSpace space, const BayesOptions& options);
Result<std::unique_ptr<Algorithm>> make_tpe(SearchSpace space, const TpeOptions& options);
Result<std::unique_ptr<Algorithm>> make_qmc(SearchSpace space, const QmcOptions& options);
Result<std::unique_ptr<Algorithm>> make_cmaes(std::vector<Space> spaces,
                                              const CmaesOptions& options);
Result<std::unique_ptr<Algorithm>> make_nsga2(std::vector<Space> spaces, Nsga2Options options);

// The number of points of each space, in their order. Pure, for tests and for the grid.
Result<std::vector<std::int64_t>> allocate_grid(const std::vector<Space>& spaces,
                                                const GridOptions& options);

}  // namespace divisi::tune
