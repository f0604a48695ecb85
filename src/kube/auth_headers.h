// The headers that say who sends a request.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "kube/config.h"

#include <string>
#include <string_view>

namespace divisi::kube {

// "Bearer ...". `where` names the token's origin in the message, which never shows the token.
Result<std::string> bearer(std::string_view token, std::string_view where);
std::string basic(const std::string& username, const std::string& password);

// Impersonate-User and its kin; none for nobody.
Result<http::Headers> impersonation_headers(const Impersonation& as);

}  // namespace divisi::kube
