// KeyIndex: where the keys of an object stand, so that going through two objects of 100,000 keys
// each is no square of that.
//
// Positions, not pointers: members may be appended to the object while the index is in use, and
// those that were there keep their places. Appended ones are not found.
#pragma once

#include "json/value.h"

#include <optional>
#include <string_view>
#include <vector>

namespace divisi::json {

class KeyIndex {
 public:
  explicit KeyIndex(const Object& object);  // `object` must outlive the index

  std::optional<std::size_t> find(std::string_view key) const;

 private:
  const Object& object_;
  std::size_t size_;                 // of the object when the index was made
  std::vector<std::size_t> sorted_;  // positions by key; empty when a look through all is cheaper
};

}  // namespace divisi::json
