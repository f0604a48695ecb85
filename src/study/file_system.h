// Which file systems a study may live on.
#pragma once

#include "base/status.h"

#include <string>
#include <string_view>

namespace divisi::tune {

// The name of a file system that several machines share, by its number in statfs; "" for others.
// Locks there hold for one machine only, or not at all.
std::string_view network_file_system(long magic) noexcept;

// Fails when the file at `path`, or the folder where it would be made, is on such a file system or
// is not there.
Status check_file_system(const std::string& path);

}  // namespace divisi::tune
