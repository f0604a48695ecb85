// The ServerCall that a handler gets, bound to the connection that its request came on.
#pragma once

#include "http/server_connection.h"

#include <memory>
#include <string>

namespace divisi::http {

std::shared_ptr<ServerCall> make_server_call(std::shared_ptr<ServerConnection> connection,
                                             Request request, std::string peer);

}  // namespace divisi::http
