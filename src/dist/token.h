// Tokens of connections and of a process's own routes.
#pragma once

#include <string>
#include <string_view>

namespace divisi::dist {

// 64 hexadecimal digits in mixed case from a secure source: 256 random bits and more.
std::string new_token();

// Takes the same time wherever two tokens of one length differ.
bool same_token(std::string_view a, std::string_view b);

}  // namespace divisi::dist
