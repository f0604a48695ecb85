// The text that Python prints for a value: users know the coordinator's log in that form.
#pragma once

#include "json/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace divisi::dist {

// {'namespace': 'default', 'collectors': ['a.default:80'], 'learners': None}
std::string python_repr(const json::Value& value);
std::string python_repr(std::string_view text);
std::string python_repr(const std::vector<std::string>& list);
std::string python_repr(double number);  // the shortest text that reads back, always with a point

}  // namespace divisi::dist
