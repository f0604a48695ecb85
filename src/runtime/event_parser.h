// EventParser: the scalars of an event file (event_file.h), from bytes that come in any pieces.
//
// Bytes are foreign: lengths are bounded, sums are checked, and what is no scalar is passed over.
#pragma once

#include "base/status.h"
#include "divisi/scalar_reader.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace divisi::runtime {

class EventParser {
 public:
  // Appends the scalars of all records that are whole now. Fails where a checksum is wrong; what
  // came before it is in `out`, and every further call fails likewise.
  Status feed(std::string_view bytes, std::vector<Scalar>& out);

 private:
  // Whether there was a whole record.
  Result<bool> take_record(std::vector<Scalar>& out);
  void parse_event(std::string_view event, std::vector<Scalar>& out);
  // Whether a value is a scalar, and then `scalar` has it.
  bool parse_value(std::string_view value, Scalar& scalar);

  std::string pending_;                      // of a record that is not whole
  std::size_t used_ = 0;                     // of pending_
  std::uint64_t offset_ = 0;                 // of pending_[used_] in the file
  std::uint64_t skip_ = 0;                   // bytes of a record that is too large to keep
  std::unordered_set<std::string> scalars_;  // tags whose tensors are scalars: told once
};

}  // namespace divisi::runtime
