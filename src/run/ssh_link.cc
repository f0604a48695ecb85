#include "run/ssh_link.h"

#include "divisi/export.h"
#include "json/value.h"
#include "launch/text.h"
#include "run/environment.h"
#include "run/job.h"
#include "run/ssh_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <unistd.h>
#include <vector>

namespace divisi::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeptErrors = std::size_t{16} << 10;
constexpr std::chrono::seconds kGreetingTime{60};

// Finds divisi beside the host's ditask. In single quotes for any login shell, so without any and
// without '!'.
constexpr std::string_view kRemoteScript =
    "d=$(command -v \"$1\") || { echo \"divisi-host: there is no $1 in its search path; install "
    "divisi there, or say --remote-ditask PATH\" >&2; exit 127; }; "
    "p=\"${d%/*}/divisi\"; [ -x \"$p\" ] || p=$(command -v divisi) || { echo \"divisi-host: there "
    "is $d, but no divisi beside it\" >&2; exit 127; }; "
    "exec \"$p\" ssh-host \"$d\"";

std::vector<std::string> ssh_arguments(const SshTarget& target) {
  std::vector<std::string> words;
  const launch::Environment environment = process_environment();
  if (const auto file = launch::lookup(environment, "DIVISI_SSH_CONFIG")) {
    words = {"-F", std::string(*file)};
  }
  for (const char* const option :
       {"BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4",
        "LogLevel=ERROR", "RequestTTY=no", "RemoteCommand=none", "ControlMaster=no",
        "ClearAllForwardings=yes", "EscapeChar=none"}) {
    words.emplace_back("-o");
    words.emplace_back(option);
  }
  words.emplace_back("--");
  words.push_back(target.host);
  words.push_back(fmt::format("exec sh -c '{}' sh {}", kRemoteScript,
                              shell_quote(target.ditask.empty() ? "ditask" : target.ditask)));
  return words;
}

std::vector<std::string> error_lines(std::string_view errors) {
  std::vector<std::string> lines;
  for (const std::string& line : launch::split_list(errors, '\n')) {
    std::string text;
    for (const char c : line) {
      if (c != '\r') text += c;
    }
    if (!text.empty()) lines.push_back(std::move(text));
  }
  return lines;
}

std::string without_user(std::string_view host) {
  return std::string(host.substr(host.find('@') + 1));
}

Status check_version(std::string_view host, const json::Value& said) {
  const json::Value ours = host_version();
  for (const auto& [key, name] : {std::pair{"version", "version"},
                                  {"abi", "ABI version"},
                                  {"architecture", "architecture"}}) {
    const auto text = [&, k = key](const json::Value& value) {
      const json::Value* const found = value.find(k);
      if (found == nullptr) return std::string("unknown");
      return found->as_string() != nullptr ? *found->as_string() : json::print(*found);
    };
    if (text(said) == text(ours)) continue;
    return make_status(Code::kUnavailable,
                       "host {}: divisi there has {} {}, this one {}; install the same on both",
                       host, name, text(said), text(ours));
  }
  return {};
}

}  // namespace

std::string explain_ssh_failure(std::string_view host, std::string_view errors) {
  const std::vector<std::string> lines = error_lines(errors);
  const std::string name = without_user(host);
  const auto find = [&](std::string_view text) {
    return std::ranges::find_if(
        lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  if (const auto own = find("divisi-host: "); own != lines.end()) {
    return fmt::format("host {}: {}", host, own->substr(own->find(": ") + 2));
  }
  if (find("HOST IDENTIFICATION HAS CHANGED") != lines.end()) {
    return fmt::format(
        "host {}: its key is another one than known_hosts has: it was installed again, or somebody "
        "else answers in its place; if the first, ssh-keygen -R {} and ssh {}",
        host, name, host);
  }
  if (find("Host key verification failed") != lines.end()) {
    return fmt::format("host {}: its key is not in known_hosts; ssh {} once, and look at the key",
                       host, host);
  }
  if (const auto denied = find("Permission denied"); denied != lines.end()) {
    return fmt::format("host {}: it refuses us ({}); try ssh {} true, ssh-add -l", host, *denied,
                       host);
  }
  if (lines.empty()) return fmt::format("host {}: ssh ended without a word", host);
  return fmt::format("host {}: {}", host, lines.back());
}

Result<SshLink> SshLink::open(const SshTarget& target) {
  io::SpawnOptions options;
  options.program = "ssh";
  options.arguments = ssh_arguments(target);
  options.standard_input = io::Stdio::kPipe;
  options.standard_output = io::Stdio::kPipe;
  options.standard_error = io::Stdio::kPipe;
  options.die_with_parent = true;
  options.new_process_group = !target.of_this_thread;
  options.clear_signal_mask = true;
  auto process = io::Process::spawn(options);
  if (!process) {
    return failure(Code::kUnavailable,
                   "ssh cannot be started: {}; install the OpenSSH client (openssh-client)",
                   process.error().message());
  }
  SshLink link(target, *std::move(process));
  for (const int fd : {link.output_fd(), link.error_fd()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  if (const Status status = link.greet(); !status.ok()) return failure(status);
  return link;
}

Status SshLink::greet() {
  const auto hello = receive(Clock::now() + kGreetingTime);
  if (!hello) return hello.error();
  const auto said = json::parse(hello->payload);
  if (hello->type != 'V' || !said) {
    return make_status(Code::kUnavailable, "host {}: divisi there does not say its version", host_);
  }
  return check_version(host_, *said);
}

// False at its end.
bool SshLink::read_some(io::Descriptor& from, std::string& into) {
  std::array<char, 65536> piece{};
  while (from) {
    const ssize_t got = ::read(from.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      from.reset();
      return false;
    }
    into.append(piece.data(), static_cast<std::size_t>(got));
    return true;
  }
  return false;
}

Status SshLink::pump() {
  std::string bytes;
  read_some(process_.error(), errors_);
  if (errors_.size() > kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
  if (!read_some(process_.output(), bytes)) ended_ = true;
  reader_.add(bytes);
  return {};
}

Result<std::optional<Frame>> SshLink::take() {
  auto found = reader_.next();
  if (!found) {
    return failure(Code::kUnavailable, "host {}: it answers something else: {}", host_,
                   found.error().message());
  }
  if (*found && (*found)->type == '!') {
    return failure(Code::kUnavailable, "host {}: {}", host_, (*found)->payload);
  }
  if (!*found && ended_) return failure(lost());
  return *std::move(found);
}

Result<Frame> SshLink::receive(std::optional<Clock::time_point> deadline) {
  while (true) {
    DIVISI_TRY(std::optional<Frame> found, take());
    if (found) return *std::move(found);
    if (const Status status = check_given_up(); !status.ok()) return failure(status);
    std::array<pollfd, 2> watched{pollfd{output_fd(), POLLIN, 0}, pollfd{error_fd(), POLLIN, 0}};
    int timeout = -1;
    if (deadline) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
      if (rest.count() <= 0) {
        return failure(Code::kTimeout, "host {}: no answer within {} s", host_,
                       kGreetingTime.count());
      }
      timeout = static_cast<int>(rest.count());
    }
    constexpr int kAskAgain = 200;  // milliseconds
    if (given_up_ && (timeout < 0 || timeout > kAskAgain)) timeout = kAskAgain;
    ::poll(watched.data(), watched.size(), timeout);
    if (const Status status = pump(); !status.ok()) return failure(status);
  }
}

Status SshLink::check_given_up() const {
  if (!given_up_ || !given_up_()) return {};
  return make_status(Code::kCancelled, "host {}: it was given up", host_);
}

Status SshLink::lost() {
  // It has ended, or does so now: its last words are behind the end of its output.
  process_.input().reset();
  constexpr int kLastWords = 5000;  // milliseconds
  while (process_.error()) {
    pollfd watched{error_fd(), POLLIN, 0};
    if (::poll(&watched, 1, kLastWords) == 0) break;
    read_some(process_.error(), errors_);
  }
  return make_status(Code::kUnavailable, "{}", explain_ssh_failure(host_, errors_));
}

Status SshLink::send(char type, std::string_view payload) {
  unsent_ += frame(type, payload);
  return flush(0);
}

Result<std::vector<std::string>> SshLink::ask_missing(const PackageTree& tree,
                                                      const std::string& folder) {
  json::Value wanted;
  wanted["root"] = tree.root;
  wanted["folder"] = folder;
  if (const Status status = send('P', json::print(wanted)); !status.ok()) return failure(status);
  DIVISI_TRY(const Frame answer, receive());
  const auto said = json::parse(answer.payload);
  if (answer.type != 'M' || !said || said->as_array() == nullptr) {
    return failure(Code::kUnavailable, "host {}: it does not say what it lacks", host_);
  }
  std::vector<std::string> digests;
  for (const json::Value& digest : *said->as_array()) {
    if (digest.as_string() != nullptr) digests.push_back(*digest.as_string());
  }
  return digests;
}

// Small objects share a write.
Status SshLink::flush(std::size_t from) {
  if (unsent_.size() < from) return {};
  DIVISI_TRY_STATUS(check_given_up());
  const Status status = write_bytes(process_.input().get(), unsent_);
  unsent_.clear();
  if (status.ok()) return {};
  // Why it went is said behind what it has sent.
  while (true) {
    if (const auto left = receive(Clock::now() + kGreetingTime); !left) return left.error();
  }
}

Status SshLink::send_object(const std::string& digest, const PackageObject& object) {
  unsent_ += frame('F', digest);
  if (object.source.empty()) {
    unsent_ += frame('D', object.text);
  } else {
    std::ifstream in(object.source, std::ios::binary);
    std::string piece(kFramePiece, '\0');
    while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
      unsent_ += frame('D', {piece.data(), static_cast<std::size_t>(in.gcount())});
      DIVISI_TRY_STATUS(flush(kFramePiece));
    }
  }
  unsent_ += frame('E');
  return flush(kFramePiece);
}

Result<SshLink::Sent> SshLink::send_package(const PackageTree& tree, const std::string& folder) {
  Sent sent;
  // A host that lacks the same again and again has no place for it.
  constexpr int kMostRounds = 8;
  for (int round = 0; round < kMostRounds; ++round) {
    DIVISI_TRY(const std::vector<std::string> digests, ask_missing(tree, folder));
    if (digests.empty()) return sent;
    for (const std::string& digest : digests) {
      const auto object = tree.objects.find(digest);
      if (object == tree.objects.end()) {
        return failure(Code::kUnavailable, "host {}: it asks for what the package has not", host_);
      }
      if (const Status status = send_object(digest, object->second); !status.ok()) {
        return failure(status);
      }
      sent.files += object->second.source.empty() ? 0 : 1;
      sent.bytes += object->second.size;
    }
  }
  return failure(Code::kUnavailable, "host {}: it does not keep what it is sent", host_);
}

}  // namespace divisi::run
