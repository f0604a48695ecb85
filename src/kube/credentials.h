// Credentials: what each request and each connection to a cluster needs, kept fresh.
//
//   DIVISI_TRY(auto credentials, Credentials::make(reactor, config, {.on_changed = close_idle}));
//   credentials->get([](Result<RequestAuth> auth) { ... send with auth->headers ... });
//   http::ClientOptions{.tls = [&] { return credentials->tls(); }};
//
// Loop only. Token files are read again every minute, certificates when their files changed, exec
// plugins run again before what they gave expires; all of them once more after a refusal (401).
// Nothing here blocks the loop longer than reading a small file: plugins run beside it.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "io/reactor.h"
#include "io/tls.h"
#include "kube/certificates.h"
#include "kube/config.h"
#include "kube/exec_plugin.h"
#include "kube/retry.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::kube {

struct RequestAuth {
  http::Headers headers{};    // Authorization, Impersonate-*; possibly none
  std::uint64_t version = 0;  // for refused() and accepted()
};

struct CredentialsOptions {
  // Certificates are others than before: kept connections still show the old ones.
  std::function<void()> on_changed{};
  // Expiry times are of the calendar; everything else is measured with the reactor's clock.
  std::function<std::chrono::system_clock::time_point()> wall_clock =
      &std::chrono::system_clock::now;
  bool terminal = stdin_is_terminal();  // a plugin may ask a person
  io::Duration plugin_deadline = std::chrono::seconds(60);
  MakeTls make_tls = &io::TlsContext::client;
};

class Credentials {
 public:
  // Fails for values that no header can carry.
  static Result<std::unique_ptr<Credentials>> make(io::Reactor& reactor, Config config,
                                                   CredentialsOptions options = {});
  ~Credentials();  // ends a plugin that runs; callbacks that wait are dropped
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  // `done` runs once, before get() returns unless a plugin has to run first. All who ask while it
  // runs share its outcome; after a run that failed nobody starts another for a while, which grows
  // with every failure: a thousand requests must not start a thousand programs.
  void get(std::function<void(Result<RequestAuth>)> done);

  // For a new connection. A plugin's certificate is in it once get() has answered.
  Result<TlsContextPtr> tls();

  // The server did not take (401) or did take the headers of that version. After a refusal the
  // next get() looks for newer ones, once, until something was taken or minutes have passed: a
  // server that refuses everybody must not start a plugin for every request.
  void refused(std::uint64_t version);
  void accepted(std::uint64_t version);

 private:
  Credentials(io::Reactor& reactor, Config config, CredentialsOptions options,
              http::Headers impersonation);

  using Waiting = std::vector<std::function<void(Result<RequestAuth>)>>;

  RequestAuth with(std::string authorization) const;
  Result<RequestAuth> with_token(const std::string& token) const;
  Result<RequestAuth> from_token_file();
  bool plugin_is_due() const;
  Result<RequestAuth> from_plugin(const ExecCredential& credential) const;
  void start_plugin(const ExecPlugin& plugin);
  void plugin_failed(Status why);
  void plugin_ended(const std::string& name, Result<ExecCredential> outcome);
  Status take(const std::string& name, const ExecCredential& credential);
  void answer_waiting(const Result<RequestAuth>& outcome);
  void poll_later();
  void changed();

  // Constant after make().
  io::Reactor& reactor_;
  const Config config_;
  const CredentialsOptions options_;
  const http::Headers impersonation_;

  // Owned by the loop.
  Certificates certificates_;
  std::unique_ptr<io::Timer> poll_;
  std::uint64_t version_ = 1;
  bool stale_ = false;                       // refused since it was made
  std::optional<io::TimePoint> refused_at_;  // no success since

  std::string file_token_;  // the last that could be read
  std::optional<io::TimePoint> file_read_at_;

  std::optional<ExecCredential> plugin_credential_;  // nothing after a run that failed
  std::optional<std::chrono::system_clock::time_point> renew_at_;
  Status plugin_error_;  // of the last run; holds until plugin_again_
  io::TimePoint plugin_again_{};
  Backoff plugin_backoff_;
  std::unique_ptr<ExecRun> running_;
  Waiting waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // what is posted checks it
};

}  // namespace divisi::kube
