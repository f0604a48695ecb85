// Reads Python pickles, protocols 0 to 5, without executing anything.
//
//   DIVISI_TRY(pickle::Value config, pickle::load(bytes));
//
// A pickle is a program for a small machine. This one has no instruction that calls: a global
// (a class or function named in the pickle) is only a name, and a pickle that applies one is
// understood when the name is in a closed list of containers and numbers:
//
//   dict, list, set, frozenset, tuple, bytes, bytearray      as themselves
//   collections.OrderedDict, easydict.EasyDict               as dict; their attributes are dropped
//   numpy scalars                                            as bool, int or float
//
// Every other name is refused by name. So are persistent ids, extension codes, out-of-band
// buffers and structures that contain themselves.
#pragma once

#include "base/status.h"
#include "pickle/value.h"

#include <cstddef>
#include <string_view>

namespace divisi::pickle {

struct Limits {
  std::size_t max_bytes = std::size_t{16} << 20;  // of the pickle: a configuration, not a data set
  std::size_t max_values = 1'000'000;             // made while reading, and again in the result
  std::size_t max_depth = 100;                    // of containers in each other
};

// One pickle, nothing after it. Fails with the byte where reading stopped and why.
Result<Value> load(std::string_view bytes, const Limits& limits = {});

}  // namespace divisi::pickle
