// Certificates: the TLS context of a cluster, made again when its files change.
//
// Loop only. A file is looked at (size, time, inode) when somebody asks and a few seconds have
// passed since the last look. While new files do not fit together, as in the middle of a
// rotation, the last good context stays.
#pragma once

#include "base/status.h"
#include "io/reactor.h"
#include "io/tls.h"
#include "kube/config.h"
#include "kube/files.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::kube {

using TlsContextPtr = std::shared_ptr<const io::TlsContext>;
using MakeTls = std::function<Result<TlsContextPtr>(const io::TlsClientOptions&)>;

class Certificates {
 public:
  Certificates(const Config& config, MakeTls make_tls);

  Result<TlsContextPtr> context();

  // Looks at the files, unless it did a moment ago. True if the context is another one now:
  // connections made with the last are outdated.
  bool refresh(io::TimePoint now);

  // Of a plugin; instead of the files. True as for refresh(). Fails, and changes nothing, if it is
  // no usable pair.
  Result<bool> use_identity(std::optional<io::TlsIdentity> identity);

  // The certificates of the server's issuers as text, for a plugin that wants them.
  Result<std::string> ca_pem() const;

 private:
  // A text that is given, or that a file holds.
  struct Source {
    std::string what;  // "the client key"
    std::string pem;
    std::string file;
    bool given() const { return !pem.empty() || !file.empty(); }
    Result<std::string> read() const;
  };

  Result<TlsContextPtr> make(const std::optional<io::TlsIdentity>& plugin_identity) const;
  std::vector<FileStamp> stamps() const;
  Status remake(std::optional<io::TlsIdentity> plugin_identity);

  // Constant after construction.
  const MakeTls make_tls_;
  const bool verify_;
  const Source ca_;
  const Source certificate_;
  const Source key_;

  // Owned by the loop.
  std::optional<io::TlsIdentity> plugin_identity_;
  TlsContextPtr current_;
  std::vector<FileStamp> used_;    // of the files that current_ was made of
  std::vector<FileStamp> warned_;  // did not fit together, and somebody was told
  std::optional<io::TimePoint> looked_at_;
};

}  // namespace divisi::kube
