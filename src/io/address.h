// Addresses as users write them: "tcp://10.0.0.1:50515", "10.0.0.1:50515", "ipc:///tmp/a.ipc".
#pragma once

#include "base/status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace divisi::io {

struct Address {
  enum class Scheme { kTcp, kIpc };
  Scheme scheme = Scheme::kTcp;
  std::string host;        // tcp: name, IPv4, or IPv6 without brackets
  std::uint16_t port = 0;  // tcp; 0 asks the kernel for a free one when listening
  std::string path;        // ipc: a file system path; with '@' in front the abstract name space

  // "host:port" without a scheme means tcp. The error says what is wrong and shows the form.
  static Result<Address> parse(std::string_view text);

  std::string to_string() const;

  friend bool operator==(const Address&, const Address&) = default;
};

}  // namespace divisi::io
