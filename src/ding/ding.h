// ding: the processes of a first-generation DIJob (docs: ding --help).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace divisi::ding {

// The whole program. `name` is how it was called, for its errors: "ding" or "divisi dist".
// `arguments` are those behind it. Errors are one line on stderr; 2 for a mistake of the user,
// otherwise 1.
int ding_main(std::string_view name, const std::vector<std::string>& arguments);

}  // namespace divisi::ding
