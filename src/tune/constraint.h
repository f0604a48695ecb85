// Constraints on results: how far a condition is from holding.
#pragma once

#include "base/status.h"
#include "divisi/tune.h"

namespace divisi::tune {

// 0 if the condition holds. Otherwise, of a comparison how far its sides are apart; of `&` the sum,
// of `|` the smaller one; of a truth value 1; of a number by how much it is above 0. Fails if a
// part has no value or is not a number.
Result<double> violation_of(const Expr& condition, const Record& record);

}  // namespace divisi::tune
