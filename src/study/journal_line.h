// A line of the journal: a JSON object, "op" first. docs/tuner.md shows them.
#pragma once

#include "base/status.h"
#include "study/log.h"

#include <string>
#include <string_view>
#include <variant>

namespace divisi::tune {

inline constexpr int kJournalVersion = 1;

struct JournalHeader {
  int version = kJournalVersion;
};
struct JournalRemoval {
  std::uint64_t study = 0;
};
struct JournalChange {
  std::uint64_t study = 0;
  Change change;
};
using JournalLine = std::variant<JournalHeader, Log::Entry, JournalRemoval, JournalChange>;

// With its newline. Fails when a text that should be JSON is not.
Result<std::string> journal_text(const JournalLine& line);

// Without a newline. Fails with what is wrong.
Result<JournalLine> parse_journal_line(std::string_view text);

// Whether a line is about the studies of the file, not about one of them.
bool is_about_studies(std::string_view text);

}  // namespace divisi::tune
