// The log: one line an event on stderr, written whole, so that lines of several threads and of
// several processes that share a terminal or a pipe never mix.
//
//   log::set_identity("train-7", 3);
//   log::info("listening addr={} peers={}", address, peers);
//   // 2026-01-31T10:20:30.123Z info job=train-7 node=3 listening addr=tcp://127.0.0.1:50515
//   peers=2
//
// Every function may be called from any thread, also while static objects are destroyed, and none
// throws. A line below the level costs one relaxed load: its arguments are not formatted.
// Secrets are never arguments of these functions.
#pragma once

#include "base/status.h"
#include "divisi/export.h"

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <string_view>

namespace divisi::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

// Lines below `level` are dropped. Default: kInfo.
DIVISI_API void set_level(Level level) noexcept;

// "debug", "info", "warning" (or "warn"), "error", "off", in any case.
DIVISI_API Result<Level> parse_level(std::string_view text);
DIVISI_API std::string_view level_name(Level level) noexcept;

// From now on every line carries job=… node=….
DIVISI_API void set_identity(std::string job, int node);

// true: each line is a JSON object with time, level, job, node and message.
DIVISI_API void set_json(bool json);

// Without control characters, which a stranger's text must not bring to a terminal.
DIVISI_API std::string printable(std::string text);

namespace detail {
// Written by set_level only. Relaxed: a line more or less around the change is harmless.
DIVISI_API extern std::atomic<Level> threshold;
DIVISI_API void write(Level level, fmt::string_view text, fmt::format_args args) noexcept;
}  // namespace detail

inline bool enabled(Level level) noexcept {
  return level >= detail::threshold.load(std::memory_order_relaxed);
}

template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) noexcept {
  if (enabled(Level::kDebug)) {
    detail::write(Level::kDebug, text, fmt::make_format_args(args...));
  }
}

template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) noexcept {
  if (enabled(Level::kInfo)) {
    detail::write(Level::kInfo, text, fmt::make_format_args(args...));
  }
}

template <class... Args>
void warning(fmt::format_string<Args...> text, Args&&... args) noexcept {
  if (enabled(Level::kWarning)) {
    detail::write(Level::kWarning, text, fmt::make_format_args(args...));
  }
}

template <class... Args>
void error(fmt::format_string<Args...> text, Args&&... args) noexcept {
  if (enabled(Level::kError)) {
    detail::write(Level::kError, text, fmt::make_format_args(args...));
  }
}

}  // namespace divisi::log
