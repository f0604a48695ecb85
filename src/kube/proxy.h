// The proxy that the environment asks for: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, upper case first,
// read as Go's programs and therefore kubectl read them.
#pragma once

#include "base/status.h"
#include "http/client.h"
#include "kube/config.h"

#include <string>
#include <string_view>

namespace divisi::kube {

// A URL that http::Url::parse takes, or "" for none. Fails for a proxy that we cannot use, without
// showing it: it may hold a password.
Result<std::string> proxy_from_environment(const EnvironmentLookup& environment,
                                           const http::Url& server);

// Whether a list like "10.0.0.0/8,.example.com,host:6443,*" excepts the server. A name stands for
// itself and what is below it; with a dot or "*." in front only for what is below. This machine
// itself is always excepted.
bool is_excepted(const http::Url& server, std::string_view no_proxy);

}  // namespace divisi::kube
