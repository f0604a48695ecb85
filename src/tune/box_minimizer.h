// A local minimum of a smooth function inside a box.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace divisi::tune {

// Gives the value at `x` and writes the gradient. A value that is not finite means "not here".
using Smooth = std::function<double(std::span<const double> x, std::span<double> gradient)>;

// Moves `x` to a better point of the box and returns the value there, by projected BFGS; the value
// is never worse than at the start. For few dimensions: a step costs their number squared.
double minimize_in_box(const Smooth& function, std::span<const double> lower,
                       std::span<const double> upper, int max_iterations, std::vector<double>& x);

}  // namespace divisi::tune
