// Authority: certificates for tests, made in memory.
//
//   Authority ca("Test CA");
//   TlsIdentity server = ca.issue({.name = "server", .hosts = {"localhost", "127.0.0.1"}});
#pragma once

#include "io/tls.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace divisi::io::testing {

struct CertificateSpec {
  std::string name{};                // its CN
  std::vector<std::string> hosts{};  // names and addresses it is for
  std::chrono::seconds valid_from{-3600};
  std::chrono::seconds valid_until{3600};
};

class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();

  const std::string& pem() const { return pem_; }
  TlsIdentity issue(const CertificateSpec& spec) const;

 private:
  struct Keys;
  std::unique_ptr<Keys> keys_;
  std::string pem_;
};

}  // namespace divisi::io::testing
