// The interaction protocol of coordinator and workers: numbers, codes, texts. The same for both
// sides; see docs of the first generation for the routes.
#pragma once

#include "io/reactor.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace divisi::dist {

inline constexpr std::uint16_t kMasterPort = 7235;
inline constexpr std::uint16_t kSlavePort = 7236;

// Of a request or an answer between workers. Records are small: they name files.
inline constexpr std::size_t kMaxBodyBytes = std::size_t{16} << 20;

inline constexpr std::string_view kChannelHeader = "Channel";
inline constexpr std::string_view kTokenHeader = "Token";

// "code" of an answer. 0 is success.
enum class ReplyCode : int {
  kSuccess = 0,
  kShuttingDown = 101,
  kNoChannel = 201,
  kWrongChannel = 202,
  kNoMasterToken = 301,
  kWrongMasterToken = 302,
  kNoSelfToken = 401,
  kWrongSelfToken = 402,
  // Of a slave.
  kAlreadyConnected = 501,
  kNotConnected = 502,
  kConnectionRefused = 503,
  kDisconnectionRefused = 504,
  kTaskExists = 601,
  kTaskRefused = 602,
  // Of a master.
  kNoSlaveToken = 501,
  kUnknownSlaveToken = 502,
  kBadTaskData = 601,
};

// Retries happen on connection errors and on time-outs, never on an answer.
struct RetryOptions {
  int retries = 5;
  io::Duration pause = std::chrono::seconds(1);
  io::Duration connect_timeout = std::chrono::seconds(5);
  io::Duration answer_timeout = std::chrono::seconds(10);  // of one attempt
};

}  // namespace divisi::dist
