// Misspelt fields: members that no field of a DIJob is called like, but almost.
//
// Unknown fields are ignored, as manifests of all releases expect; one that differs by a letter or
// two from a field that exists is hardly meant to be.
#pragma once

#include "json/value.h"

#include <string>
#include <vector>

namespace divisi::dijob {

// "spec.backofLimit is not known: is backoffLimit meant?" for each in `spec` and its tasks.
std::vector<std::string> misspelt_fields(const json::Value& object);

}  // namespace divisi::dijob
