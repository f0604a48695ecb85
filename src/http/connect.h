// connect: from the options of a client to a stream that requests can be sent on: name, TCP, the
// proxy's CONNECT and TLS, all within connect_timeout.
#pragma once

#include "http/client.h"

#include <functional>
#include <memory>

namespace divisi::http {

// `on_done` runs once, unless the returned handle is destroyed first. Loop only.
[[nodiscard]] std::unique_ptr<io::Timer> connect(
    io::Reactor& reactor, const ClientOptions& options,
    std::function<void(Result<std::shared_ptr<io::Stream>>)> on_done);

// The value of Proxy-Authorization for a proxy's URL with credentials; empty without.
std::string proxy_credentials(const Url& proxy);

}  // namespace divisi::http
