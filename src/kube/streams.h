// What a pod says and takes: its log, and commands in its containers.
#pragma once

#include "kube/client.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::kube {

struct LogOptions {
  std::string container{};  // empty: the only one
  bool follow = false;
  bool previous = false;  // of the container before its last restart
  bool timestamps = false;
  std::optional<std::int64_t> tail_lines{};
  std::optional<std::int64_t> since_seconds{};
  // Whole seconds count: the server passes no parts of them on.
  std::optional<std::chrono::system_clock::time_point> since_time{};
  std::optional<std::int64_t> limit_bytes{};
};

// The log as it comes. Destroying the call ends it; pause() holds the server back. Loop only.
[[nodiscard]] std::unique_ptr<http::Call> read_log(
    Client& client, std::string_view space, std::string_view pod, const LogOptions& options,
    std::function<void(std::string_view piece)> on_piece, std::function<void(Status)> on_done);

struct ExecOptions {
  std::string container{};  // empty: the only one
  std::vector<std::string> command{};
  bool input = false;
  bool terminal = false;
};

struct ExecHandlers {
  std::function<void(std::string_view)> on_output{};
  std::function<void(std::string_view)> on_error{};  // its standard error; none with a terminal
  std::function<void()> on_progress{};  // unsent() is less than before: who waits may write on
  // Once, last: the exit code of the command, or why there is none.
  std::function<void(Result<int>)> on_done{};
};

// A command in a running container, over WebSocket (v5.channel.k8s.io, v4 where the server has no
// newer). Destroying it closes the connection. Loop only.
class Exec {
 public:
  [[nodiscard]] static std::unique_ptr<Exec> start(Client& client, std::string_view space,
                                                   std::string_view pod, const ExecOptions& options,
                                                   ExecHandlers handlers);
  virtual ~Exec() = default;
  virtual void write(std::string_view input) = 0;  // kept until the connection is open
  virtual std::size_t unsent() const = 0;          // bytes of input that wait to be taken
  virtual void close_input() = 0;
  virtual void resize(int columns, int rows) = 0;
};

// The exit code that the error channel of an exec tells.
Result<int> exit_code_of(const json::Value& status);

}  // namespace divisi::kube
