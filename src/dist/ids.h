// Names that are unique without asking anybody.
#pragma once

#include <string>
#include <string_view>

namespace divisi::dist {

// A random UUID: "be49a1aa-b13a-41eb-84d1-5afa89bc32d3".
std::string new_uuid();

// "<prefix>_PID<pid>UUID<uuid>_<seconds since 1970>", without "<prefix>_" when the prefix is empty:
// of coordinators, tasks ("learner_task", "collector_task"), buffers ("buffer"), policies
// ("policy").
std::string new_id(std::string_view prefix);

}  // namespace divisi::dist
