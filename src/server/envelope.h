// The envelope of every JSON answer: {"success", "code", "message", "data"}.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "json/value.h"

#include <string>
#include <string_view>

namespace divisi::server {

// The only text with quotes that stays as it is: the command line of the first generation looks for
// it in an answer.
inline constexpr std::string_view kQuantitySyntax =
    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

http::Response success(std::string_view message, json::Value data = {});

// 400, 401, 404 and 409 for the codes that mean those, 500 for the others. The message becomes
// plain ASCII, and quotes in it backquotes: it may show what a stranger sent, and a client that
// swaps quote characters before it parses must still be able to.
http::Response failed(const Status& status, json::Value data = {});
http::Response failed(int http_status, std::string message, json::Value data = {});

// What the cluster says about our own request. That we are not allowed to, or wrote something
// invalid, is no mistake of the client: only "not there" and "changed meanwhile" reach it as such.
Status of_cluster(const Status& status);

}  // namespace divisi::server
