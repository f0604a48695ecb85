// A pod template from outside, brought into the one shape that the rest of this module relies on.
#pragma once

#include "dijob/fields.h"
#include "json/value.h"

#include <string>
#include <vector>

namespace divisi::dijob {

// The member `template` of `owner` as an object with `metadata` and `spec`, in which containers,
// volumes, variables, mounts, ports and labels are of the kinds that they have in the API. What a
// published guide prints, `containers` beside an empty `spec`, is taken for what it means, with a
// line in `warnings`.
json::Value read_pod_template(Fields& owner, std::vector<std::string>& warnings);

// The lists that hold containers; those of the second run before those of the first.
inline constexpr std::string_view kContainerLists[] = {"containers", "initContainers"};

// The elements of an array that may be absent, null or no array at all.
const json::Array& elements(const json::Value& object, std::string_view key) noexcept;

}  // namespace divisi::dijob
