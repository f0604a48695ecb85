// SshLink: a connection to a host by the system's OpenSSH client, with `divisi ssh-host` at its
// other end. The user's configuration, agent and known hosts hold; nothing asks, and a key that is
// not known is never taken.
//
//   DIVISI_TRY(SshLink link, SshLink::open({.host = "b"}));    // the same version answers, or one
//   line DIVISI_TRY(Sent sent, link.send_package(tree, folder));    // only what the host lacks
//
// Every failure names the host. One thread uses it.
#pragma once

#include "base/status.h"
#include "io/process.h"
#include "run/frames.h"
#include "run/package_store.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::run {

struct SshTarget {
  std::string host{};    // as ssh takes it: "b", "user@b"
  std::string ditask{};  // the program there; empty: of its search path
  // The ssh ends with the thread that opened the link, and with the terminal's Ctrl-C.
  bool of_this_thread = true;
  std::function<bool()> given_up{};  // asked now and then: true ends what is waited for
};

// One line about a host out of what ssh, its shell or divisi there wrote to standard error.
std::string explain_ssh_failure(std::string_view host, std::string_view errors);

class SshLink {
 public:
  static Result<SshLink> open(const SshTarget& target);

  struct Sent {
    std::size_t files = 0;  // objects: files and lists of them
    std::uint64_t bytes = 0;
  };
  Result<Sent> send_package(const PackageTree& tree, const std::string& folder);

  Status send(char type, std::string_view payload = {});
  // The next frame, waited for until the deadline if there is one.
  Result<Frame> receive(std::optional<std::chrono::steady_clock::time_point> deadline = {});
  // For somebody who waits for more than this link: what has come. Nothing: not yet.
  Result<std::optional<Frame>> take();
  int output_fd() noexcept { return process_.output().get(); }
  int error_fd() noexcept { return process_.error().get(); }
  // Takes what has come, without waiting.
  Status pump();
  // Why the connection ended, in one line.
  Status lost();

 private:
  SshLink(const SshTarget& target, io::Process process)
      : host_(target.host),
        given_up_(target.given_up),
        process_(std::move(process)),
        reader_(true) {}
  Status check_given_up() const;
  Status greet();
  Result<std::vector<std::string>> ask_missing(const PackageTree& tree, const std::string& folder);
  Status send_object(const std::string& digest, const PackageObject& object);
  Status flush(std::size_t from);  // once so many bytes wait
  bool read_some(io::Descriptor& from, std::string& into);

  std::string host_;
  std::function<bool()> given_up_;
  io::Process process_;
  FrameReader reader_;
  std::string unsent_;
  std::string errors_;  // the end of what came on standard error
  bool ended_ = false;
};

}  // namespace divisi::run
