// Base64 (RFC 4648) of credentials and WebSocket keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace divisi::http {

std::string encode_base64(std::string_view bytes);
// Nothing for text that no encoder would write.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace divisi::http
