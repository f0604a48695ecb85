// What --main says, and the files that could hold it (spec 6.2, N11). Pure functions of text.
#pragma once

#include "base/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace divisi::launch {

struct EntryName {
  std::string module;      // "a.b" of "a.b.main"; the file name of "libfoo.so:symbol"
  std::string function;    // "main", or the symbol
  bool is_symbol = false;  // written as file.so:symbol

  // What the user would type.
  std::string text() const { return module + (is_symbol ? ":" : ".") + function; }
};

// "module.sub.function" or "libfoo.so:symbol".
Result<EntryName> parse_entry_name(std::string_view text);

// The entry of a package without --main: its base name, function `main`.
Result<EntryName> default_entry_name(std::string_view package_base_name);

// Paths to try, in order, for a package unpacked at `package` whose parent directory is `parent`:
// in the package, in its parent, in <package>/<root module>; in each, name.so before libname.so.
std::vector<std::string> candidate_files(const EntryName& entry, const std::string& package,
                                         const std::string& parent);

}  // namespace divisi::launch
