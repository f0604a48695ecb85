// Names of types as a person would say them, for error messages.
#pragma once

#include "divisi/export.h"

#include <string>
#include <typeinfo>

namespace divisi::detail {

DIVISI_API std::string demangled(const std::type_info& type);

}  // namespace divisi::detail
