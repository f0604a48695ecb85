// What a running trial says of itself: a line of its metrics file.
//
//   {"step": 100, "value": 0.83}
//   {"step": 100, "values": {"reward": 12.5, "loss": 0.3}}
#pragma once

#include "base/status.h"
#include "divisi/tune.h"

#include <cstdint>
#include <string_view>

namespace divisi::tune_run {

struct Report {
  std::int64_t step = 0;
  double value = 0;
};

// `values` becomes one number by the target's expression, as if it were the result; where it has
// one member only, that is it.
Result<Report> parse_report(std::string_view line, const tune::Expr& target);

}  // namespace divisi::tune_run
