// From a URL to a log.
#include "study/file_system.h"
#include "study/log.h"

#include <array>

namespace divisi::tune {
namespace {

enum class LogKind { kSqlite, kJournal, kMemory };

struct Place {
  LogKind kind;
  std::string path;
};

Result<Place> parse_url(const std::string& url) {
  const std::string_view text = url;
  if (text == "memory:") return Place{.kind = LogKind::kMemory, .path = ""};
  struct Known {
    std::string_view scheme;
    LogKind kind;
  };
  for (const auto& [scheme, kind] :
       {Known{"sqlite:", LogKind::kSqlite}, Known{"file:", LogKind::kJournal}}) {
    if (!text.starts_with(scheme)) continue;
    std::string path(text.substr(scheme.size()));
    // sqlite:///relative.db and sqlite:////absolute.db, as other tools write them.
    if (path.starts_with("///")) path.erase(0, 3);
    if (path.empty()) return failure(Code::kInvalid, "the storage {} names no file", url);
    return Place{.kind = kind, .path = std::move(path)};
  }
  for (const std::string_view end : {".db", ".sqlite", ".sqlite3"}) {
    if (text.ends_with(end)) return Place{.kind = LogKind::kSqlite, .path = url};
  }
  if (text.ends_with(".jsonl")) return Place{.kind = LogKind::kJournal, .path = url};
  return failure(Code::kInvalid,
                 "the storage '{}' is not understood: write sqlite:PATH, file:PATH (JSON lines) or "
                 "memory:, or a path that ends in .db, .sqlite or .jsonl",
                 url);
}

}  // namespace

Result<std::unique_ptr<Log>> open_log(const std::string& url, Access access, Fsync fsync) {
  DIVISI_TRY(const Place place, parse_url(url));
  if (place.kind == LogKind::kMemory) {
    if (access == Access::kRead) {
      return failure(Code::kNotFound, "a study in memory ends with the object that made it");
    }
    return make_memory_log();
  }
  if (Status fits = check_file_system(place.path); !fits.ok()) return failure(std::move(fits));
  if (place.kind == LogKind::kJournal) return open_journal_log(place.path, access, fsync);
  return open_sqlite_log(place.path, access, fsync);
}

}  // namespace divisi::tune
