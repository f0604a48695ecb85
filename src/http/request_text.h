// The bytes of a request, with the headers that every request has.
#pragma once

#include "http/client.h"

#include <string>

namespace divisi::http {

// Head and body, or the head alone when the body follows in pieces. Fails for a method, target or
// header that would break the message apart.
Result<std::string> request_text(const Request& request, const ClientOptions& options,
                                 bool upgrade);

// The request had "Transfer-Encoding: chunked" and no body.
bool body_follows(const Request& request);

// A method that may be sent twice (RFC 9110, 9.2.2).
bool is_idempotent(std::string_view method);

}  // namespace divisi::http
