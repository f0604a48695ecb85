// A log in SQLite: a table of studies and a table of their changes, in write-ahead mode.
#include "study/log.h"
#include "study/study_spec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::tune {
namespace {

constexpr int kApplication = 0x44697673;  // "Divs"
constexpr int kSchema = 1;
constexpr int kBusyMilliseconds = 120'000;

constexpr const char* kTables = R"(
CREATE TABLE study (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL);
CREATE TABLE change (number INTEGER PRIMARY KEY, study INTEGER NOT NULL, kind INTEGER NOT NULL,
  trial INTEGER, worker INTEGER, time REAL, state INTEGER, count INTEGER, numbers BLOB, violation REAL,
  text_a TEXT, text_b TEXT, text_c TEXT);
CREATE VIEW trial AS SELECT study.name AS study, made.trial AS id,
  CASE told.state WHEN 0 THEN 'ok' WHEN 1 THEN 'fail' WHEN 2 THEN 'skip' WHEN 3 THEN 'pruned' END AS ended,
  made.text_a AS config, told.text_a AS returned, told.text_b AS metrics, told.text_c AS error,
  datetime(made.time, 'unixepoch') AS begun, told.time - made.time AS seconds
  FROM change AS made JOIN study ON study.id = made.study LEFT JOIN change AS told
  ON told.study = made.study AND told.trial = made.trial AND told.kind = 10 WHERE made.kind IN (5, 6);
)";

constexpr const char* kInsert =
    "INSERT INTO change (study, kind, trial, worker, time, state, count, numbers, violation, "
    "text_a, "
    "text_b, text_c) SELECT ?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12 "
    "WHERE EXISTS (SELECT 1 FROM study WHERE id = ?1)";
constexpr const char* kSelect =
    "SELECT number, kind, trial, worker, time, state, count, numbers, violation, text_a, text_b, "
    "text_c FROM change WHERE number > ? AND study = ? ORDER BY number";

// A prepared statement. Columns count from 0, parameters from 1.
class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(Statement&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)) {}
  Statement& operator=(Statement&& other) noexcept {
    std::swap(statement_, other.statement_);
    return *this;
  }
  ~Statement() { sqlite3_finalize(statement_); }

  explicit operator bool() const { return statement_ != nullptr; }
  int step() { return sqlite3_step(statement_); }
  void reset() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }

  void bind(int place, std::int64_t value) { sqlite3_bind_int64(statement_, place, value); }
  void bind(int place, std::uint64_t value) { bind(place, static_cast<std::int64_t>(value)); }
  void bind(int place, double value) { sqlite3_bind_double(statement_, place, value); }
  // Empty is NULL. The text must stay until step().
  void bind(int place, const std::string& text) {
    if (text.empty()) return;
    sqlite3_bind_text64(statement_, place, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  void bind(int place, const std::vector<double>& numbers) {
    if (numbers.empty()) return;
    sqlite3_bind_blob64(statement_, place, numbers.data(), numbers.size() * sizeof(double),
                        SQLITE_STATIC);
  }

  std::int64_t whole(int column) const { return sqlite3_column_int64(statement_, column); }
  double number(int column) const { return sqlite3_column_double(statement_, column); }
  std::string text(int column) const {
    const auto* start = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    if (start == nullptr) return {};
    return {start, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
  }
  std::vector<double> numbers(int column) const {
    const void* start = sqlite3_column_blob(statement_, column);
    const auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
    std::vector<double> numbers(bytes / sizeof(double));
    if (!numbers.empty()) std::memcpy(numbers.data(), start, numbers.size() * sizeof(double));
    return numbers;
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

// Waits less long at a time than SQLite's own handler: writers hold the lock for milliseconds.
int wait_for_lock(void*, int tries) {
  const int pause_us = tries < 20 ? 200 : 2000;
  if (tries / 500 > kBusyMilliseconds / 1000) return 0;
  ::usleep(static_cast<useconds_t>(pause_us));
  return 1;
}

// NaN is NULL for SQLite, and 0 when it is read: numbers that may be NaN are blobs.
class SqliteLog final : public Log {
 public:
  SqliteLog(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}
  SqliteLog(const SqliteLog&) = delete;
  SqliteLog& operator=(const SqliteLog&) = delete;
  ~SqliteLog() override {
    insert_ = {};
    select_ = {};
    sqlite3_close(database_);
  }

  // Checks whose file it is, and makes the tables of a new one.
  Status set_up(Access access, Fsync fsync) {
    DIVISI_TRY_STATUS(check_owner(access));
    if (access == Access::kRead) return {};
    DIVISI_TRY_STATUS(use_wal());
    // FULL forces every commit to the disk, NORMAL checkpoints only: then the study calls sync().
    DIVISI_TRY_STATUS(execute(fsync == Fsync::kOff      ? "PRAGMA synchronous = OFF"
                              : fsync == Fsync::kAlways ? "PRAGMA synchronous = FULL"
                                                        : "PRAGMA synchronous = NORMAL"));
    DIVISI_TRY_STATUS(lock());
    Status made = make_tables();
    if (!made.ok()) {
      abandon();
      return made;
    }
    return commit();
  }

  Status lock() override { return execute("BEGIN IMMEDIATE"); }

  Status commit() override {
    Status committed = execute("COMMIT");
    if (!committed.ok()) abandon();
    return committed;
  }

  void abandon() override {
    if (sqlite3_get_autocommit(database_) == 0) {
      sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    }
  }

  Result<std::uint64_t> add_study(const StudySpec& spec) override {
    DIVISI_TRY(const json::Value about, spec_to_json(spec));
    const std::string text = json::print(about);
    DIVISI_TRY(Statement insert, prepare("INSERT INTO study (name, spec) VALUES (?, ?)"));
    insert.bind(1, spec.name);
    insert.bind(2, text);
    if (const int code = insert.step(); code != SQLITE_DONE) return failure(error("writing", code));
    return static_cast<std::uint64_t>(sqlite3_last_insert_rowid(database_));
  }

  Status remove_study(std::uint64_t id) override {
    for (const char* const text :
         {"DELETE FROM change WHERE study = ?", "DELETE FROM study WHERE id = ?"}) {
      Result<Statement> remove = prepare(text);
      if (!remove) return remove.error();
      remove->bind(1, id);
      if (const int code = remove->step(); code != SQLITE_DONE) return error("writing", code);
    }
    return {};
  }

  Status append(std::uint64_t study, Change& change) override {
    DIVISI_TRY_STATUS(prepare_once(insert_, kInsert));
    insert_.reset();
    insert_.bind(1, study);
    insert_.bind(2, static_cast<std::int64_t>(change.kind));
    insert_.bind(3, change.trial);
    insert_.bind(4, change.worker);
    insert_.bind(5, change.time);
    insert_.bind(6, static_cast<std::int64_t>(change.state));
    insert_.bind(7, static_cast<std::int64_t>(change.count));
    insert_.bind(8, change.numbers);
    insert_.bind(9, change.violation);
    insert_.bind(10, change.text_a);
    insert_.bind(11, change.text_b);
    insert_.bind(12, change.text_c);
    const int code = insert_.step();
    if (code != SQLITE_DONE) return error("writing", code);
    if (sqlite3_changes(database_) == 0) {
      return make_status(Code::kNotFound, "somebody has removed the study");
    }
    change.number = static_cast<std::uint64_t>(sqlite3_last_insert_rowid(database_));
    insert_.reset();
    return {};
  }

  Result<std::vector<Entry>> studies() override {
    DIVISI_TRY(Statement select, prepare("SELECT id, name, spec FROM study ORDER BY id"));
    std::vector<Entry> entries;
    int code = SQLITE_OK;
    while ((code = select.step()) == SQLITE_ROW) {
      const std::string text = select.text(2);
      const Result<json::Value> spec = json::parse(text, {.max_bytes = text.size() + 1});
      if (!spec) return failure(damaged(spec.error().message()));
      entries.push_back({.id = static_cast<std::uint64_t>(select.whole(0)),
                         .spec = spec_from_json(select.text(1), *spec)});
    }
    if (code != SQLITE_DONE) return failure(error("reading", code));
    return entries;
  }

  Status read(std::uint64_t study, std::uint64_t after, const Sink& sink) override {
    DIVISI_TRY_STATUS(prepare_once(select_, kSelect));
    select_.reset();
    select_.bind(1, after);
    select_.bind(2, study);
    int code = SQLITE_OK;
    while ((code = select_.step()) == SQLITE_ROW) {
      Status taken = take_row(sink);
      if (!taken.ok()) {
        select_.reset();
        return taken.with_context(path_);
      }
    }
    select_.reset();
    return code == SQLITE_DONE ? Status() : error("reading", code);
  }

  // The file of the write-ahead log, which SQLite's own locks do not concern.
  Status sync() override {
    const int file = ::open((path_ + "-wal").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};  // nothing is there that is not in the database already
    const int failed = ::fdatasync(file);
    const int why = errno;
    ::close(file);
    if (failed == 0) return {};
    return make_status(Code::kInternal, "forcing the study {} to the disk failed: {}", path_,
                       errno_text(why));
  }

 private:
  Status take_row(const Sink& sink) {
    const std::int64_t kind = select_.whole(1);
    const std::int64_t state = select_.whole(5);
    if (kind < static_cast<std::int64_t>(ChangeKind::kWorker) ||
        kind > static_cast<std::int64_t>(ChangeKind::kGiveBack) || state < 0 ||
        state > static_cast<std::int64_t>(TrialState::kPruned)) {
      return damaged(fmt::format("change {} is of an unknown kind", select_.whole(0)));
    }
    return sink({.number = static_cast<std::uint64_t>(select_.whole(0)),
                 .kind = static_cast<ChangeKind>(kind),
                 .trial = static_cast<std::uint64_t>(select_.whole(2)),
                 .worker = static_cast<std::uint64_t>(select_.whole(3)),
                 .time = select_.number(4),
                 .state = static_cast<TrialState>(state),
                 .count = static_cast<int>(std::clamp<std::int64_t>(select_.whole(6), 0, 1 << 30)),
                 .numbers = select_.numbers(7),
                 .violation = select_.number(8),
                 .text_a = select_.text(9),
                 .text_b = select_.text(10),
                 .text_c = select_.text(11)});
  }

  Result<std::int64_t> pragma(const char* text) {
    DIVISI_TRY(Statement query, prepare(text));
    const int code = query.step();
    if (code != SQLITE_ROW) return failure(error("reading", code));
    return query.whole(0);
  }

  // One read transaction, because another process may make the tables of a new file meanwhile: its
  // number and its tables have to be of the same moment.
  Status check_owner(Access access) {
    DIVISI_TRY_STATUS(execute("BEGIN"));
    Status owner = read_owner(access);
    abandon();
    return owner;
  }

  Status read_owner(Access access) {
    const Result<std::int64_t> application = pragma("PRAGMA application_id");
    if (!application) return application.error();
    const Result<std::int64_t> tables = pragma("SELECT count(*) FROM sqlite_master");
    if (!tables) return tables.error();
    const bool fresh = *application == 0 && *tables == 0;
    if (fresh && access == Access::kRead) {
      return make_status(Code::kNotFound, "there is no study at {}", path_);
    }
    if (!fresh && *application != kApplication) {
      return make_status(Code::kInvalid,
                         "{} is a database of another program, not of studies: give another path",
                         path_);
    }
    return check_schema(fresh);
  }

  Status check_schema(bool fresh) {
    const Result<std::int64_t> version = pragma("PRAGMA user_version");
    if (!version) return version.error();
    if (fresh || *version == kSchema) return {};
    if (*version < kSchema) return damaged(fmt::format("its schema has number {}", *version));
    return make_status(
        Code::kInvalid,
        "{} was written by a newer version of divisi (schema {}; this one knows up to "
        "{}): update divisi, or use another file",
        path_, *version, kSchema);
  }

  // Inside of a transaction: another process may have been faster.
  Status make_tables() {
    const Result<std::int64_t> application = pragma("PRAGMA application_id");
    if (!application) return application.error();
    if (*application == kApplication) return {};
    DIVISI_TRY_STATUS(execute(kTables));
    DIVISI_TRY_STATUS(execute(fmt::format("PRAGMA user_version = {}", kSchema).c_str()));
    return execute(fmt::format("PRAGMA application_id = {}", kApplication).c_str());
  }

  // Two processes that open a new file at the same time both switch its mode. SQLite answers one of
  // them with BUSY without asking its handler, so the waiting is done here.
  Status use_wal() {
    for (int attempt = 0;; ++attempt) {
      const int code =
          sqlite3_exec(database_, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
      if (code == SQLITE_OK) return {};
      if ((code & 0xFF) != SQLITE_BUSY || wait_for_lock(nullptr, attempt) == 0) {
        return error("writing", code);
      }
    }
  }

  Status execute(const char* text) {
    const int code = sqlite3_exec(database_, text, nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? Status() : error("writing", code);
  }

  Result<Statement> prepare(const char* text) {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v2(database_, text, -1, &statement, nullptr);
    if (code != SQLITE_OK) return failure(error("reading", code));
    return Statement(statement);
  }

  Status prepare_once(Statement& kept, const char* text) {
    if (kept) return {};
    Result<Statement> made = prepare(text);
    if (!made) return made.error();
    kept = *std::move(made);
    return {};
  }

  Status damaged(std::string_view how) const {
    return make_status(
        Code::kInvalid,
        "the study file {} is damaged ({}): restore a copy, or save what can be read "
        "with: sqlite3 {} .recover",
        path_, how, path_);
  }

  Status error(std::string_view doing, int code) const {
    switch (code & 0xFF) {
      case SQLITE_NOTADB:
        return make_status(Code::kInvalid, "{} is not a SQLite database: give another path", path_);
      case SQLITE_CORRUPT: return damaged(sqlite3_errmsg(database_));
      case SQLITE_FULL:
        return make_status(Code::kUnavailable,
                           "writing the study {} failed: the disk is full; the study is as it was "
                           "before",
                           path_);
      case SQLITE_READONLY:
        return make_status(Code::kForbidden, "the study {} cannot be written: it is read-only",
                           path_);
      case SQLITE_BUSY:
        return make_status(Code::kTimeout, "the study {} was locked by another program for {} s",
                           path_, kBusyMilliseconds / 1000);
      default:
        return make_status(Code::kInternal, "{} the study {} failed: {}", doing, path_,
                           sqlite3_errmsg(database_));
    }
  }

  const std::string path_;
  sqlite3* const database_;
  Statement insert_;
  Statement select_;
};

}  // namespace

Result<std::unique_ptr<Log>> open_sqlite_log(const std::string& path, Access access, Fsync fsync) {
  struct stat about{};
  if (access == Access::kRead && ::stat(path.c_str(), &about) != 0) {
    return failure(Code::kNotFound, "there is no study at {}", path);
  }
  sqlite3* database = nullptr;
  // Readers of a write-ahead log write as well, into its index; SQLite does without where it may
  // not.
  const int flags = SQLITE_OPEN_READWRITE | (access == Access::kRead ? 0 : SQLITE_OPEN_CREATE);
  const int code = sqlite3_open_v2(path.c_str(), &database, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  auto log = std::make_unique<SqliteLog>(path, database);
  if (code != SQLITE_OK) {
    return failure(Code::kForbidden, "the study {} cannot be opened: {}", path,
                   sqlite3_errstr(code));
  }
  sqlite3_extended_result_codes(database, 1);
  sqlite3_busy_handler(database, &wait_for_lock, nullptr);
  Status ready = log->set_up(access, fsync);
  if (!ready.ok()) return failure(std::move(ready));
  return log;
}

}  // namespace divisi::tune
