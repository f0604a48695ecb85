// Quasi-random search: scrambled Sobol points.
#include "tune/activity.h"
#include "tune/algorithm.h"
#include "tune/encoding.h"
#include "tune/sobol.h"

#include <set>

namespace divisi::tune {
namespace {

constexpr int kRepeats = 1000;  // points that were given, in a row, before one is given again

class Qmc final : public Algorithm {
 public:
  Qmc(std::vector<Space> spaces, Activity activity, const QmcOptions& options)
      : options_(options),
        encoding_(std::move(spaces), std::move(activity), false),
        is_finite_(encoding_.all_discrete()),
        sobol_(encoding_.size(), python_random(options.seed), Sobol::Scramble::kMatrix) {}

  std::optional<std::vector<double>> next(std::uint64_t) override {
    if (options_.max_steps && emitted_ >= *options_.max_steps) return std::nullopt;
    ++emitted_;
    Point point = encoding_.from_unit(sobol_.next());
    for (int i = 0; is_finite_ && i < kRepeats && given_.contains(point); ++i) {
      point = encoding_.from_unit(sobol_.next());
    }
    if (is_finite_) given_.insert(point);
    return encoding_.values(point);
  }

  void adopt(std::uint64_t id, const std::vector<double>& values, Origin origin) override {
    if (origin == Origin::kSearch) {
      next(id);  // the sequence goes on behind this point
    } else {
      ++emitted_;
    }
    if (is_finite_) given_.insert(encoding_.point(values));
  }

  std::optional<std::size_t> objectives() const override { return std::nullopt; }
  void finish(std::uint64_t, const Outcome&) override {}

 private:
  const QmcOptions options_;
  const Encoding encoding_;
  const bool is_finite_;
  Sobol sobol_;
  std::int64_t emitted_ = 0;
  std::set<Point> given_;  // of a finite search
};

}  // namespace

Result<std::unique_ptr<Algorithm>> make_qmc(SearchSpace space, const QmcOptions& options) {
  DIVISI_TRY(Activity activity, Activity::of(space));
  return std::make_unique<Qmc>(std::move(space.spaces), std::move(activity), options);
}

}  // namespace divisi::tune
