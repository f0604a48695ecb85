// Transforms of draws that are no arithmetic: rounded exponentials and the normal distribution.
#pragma once

#include "divisi/tune.h"

#include <string_view>

namespace divisi::tune {

// "qexp", "intexp" or "normal".
bool is_curved(std::string_view name);
Value curved(const HyperValue::Transform& transform, double raw);

// The number below which a part `p` of the standard normal distribution lies; 0 < p < 1.
double normal_quantile(double p);

}  // namespace divisi::tune
