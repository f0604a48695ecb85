// A log of JSON lines. Writers hold a lock on the file and append the lines of a transaction with
// one write. All of them but the last have a blank before their newline: a transaction without its
// last line is of a writer that died, or is being written. The next writer cuts it off; readers,
// which need no lock, stop in front of it.
#include "study/journal_line.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::tune {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18U;
constexpr std::size_t kTelling = 160;  // bytes of a line; the time of the change is among them

class JournalLog final : public Log {
 public:
  JournalLog(std::string path, int file, bool forces)
      : path_(std::move(path)), file_(file), forces_(forces) {}
  JournalLog(const JournalLog&) = delete;
  JournalLog& operator=(const JournalLog&) = delete;
  ~JournalLog() override { ::close(file_); }

  Status lock() override {
    while (::flock(file_, LOCK_EX) != 0) {
      if (errno != EINTR) return system_error("locking");
    }
    const Status ready = prepare();
    if (!ready.ok()) abandon();
    return ready;
  }

  Status commit() override {
    Status written = write_out();
    abandon();
    return written;
  }

  void abandon() override {
    out_.clear();
    out_lines_ = 0;
    ::flock(file_, LOCK_UN);
  }

  Result<std::uint64_t> add_study(const StudySpec& spec) override {
    DIVISI_TRY(const std::vector<Entry> known, studies());
    const std::uint64_t id = ++last_study_;
    DIVISI_TRY(const std::string text, journal_text(Entry{.id = id, .spec = spec}));
    put(text);
    return id;
  }

  Status remove_study(std::uint64_t id) override {
    put(journal_text(JournalRemoval{.study = id}).value_or(""));
    return {};
  }

  Status append(std::uint64_t study, Change& change) override {
    if (changes_.offset != size_) {
      return make_status(Code::kInternal, "{}: written before it was read to its end", path_);
    }
    const Result<std::string> text = journal_text(JournalChange{.study = study, .change = change});
    if (!text) return text.error();
    put(*text);
    change.number = changes_.line + out_lines_;
    return {};
  }

  Result<std::vector<Entry>> studies() override {
    if (is_taken_back(heads_)) {
      heads_ = {};
      entries_.clear();
      last_study_ = 0;
    }
    const Status read = scan(heads_, [&](std::string_view line) -> Status {
      if (!is_about_studies(line)) return {};
      const Result<JournalLine> head = parse_journal_line(line);
      if (!head) return head.error();
      take_head(*head);
      return {};
    });
    if (!read.ok()) return failure(read);
    return entries_;
  }

  Status read(std::uint64_t study, std::uint64_t after, const Sink& sink) override {
    if (after == 0) changes_ = {};  // from the beginning, also if it was read before
    return scan(changes_, [&](std::string_view text) -> Status {
      Result<JournalLine> line = parse_journal_line(text);
      if (!line) return line.error();
      if (const auto* removal = std::get_if<JournalRemoval>(&*line)) {
        if (removal->study != study) return {};
        return make_status(Code::kNotFound, "somebody has removed the study");
      }
      auto* one = std::get_if<JournalChange>(&*line);
      if (one == nullptr || one->study != study || changes_.line <= after) return {};
      one->change.number = changes_.line;
      return sink(one->change);
    });
  }

  bool shrunk() const override { return is_taken_back(changes_); }

  Status sync() override {
    return ::fdatasync(file_) == 0 ? Status() : system_error("forcing to the disk");
  }

 private:
  struct Cursor {
    std::int64_t offset = 0;  // behind the last line
    std::uint64_t line = 0;   // its number
    std::string last = {};    // how it begins
    std::int64_t last_at = 0;

    void pass(std::string_view text) {  // with its newline
      last = text.substr(0, kTelling);
      last_at = offset;
      offset += static_cast<std::int64_t>(text.size());
      ++line;
    }
  };

  // What could not be forced to the disk is cut off again, after readers may have followed it.
  // Something else may stand there by now.
  bool is_taken_back(const Cursor& cursor) const {
    struct stat about{};
    if (::fstat(file_, &about) != 0) return false;
    if (about.st_size < cursor.offset) return true;
    std::array<char, kTelling> found{};
    const ssize_t n = ::pread(file_, found.data(), cursor.last.size(), cursor.last_at);
    return n >= 0 && std::string_view(found.data(), static_cast<std::size_t>(n)) != cursor.last;
  }

  Status system_error(std::string_view doing) const {
    return make_status(errno == ENOSPC || errno == EDQUOT ? Code::kUnavailable : Code::kInternal,
                       "{} the journal {} failed: {}; the study is as it was before", doing, path_,
                       errno_text(errno));
  }

  // Under the lock: cuts off what is left of a transaction; a new file gets its first line.
  Status prepare() {
    struct stat about{};
    if (::fstat(file_, &about) != 0) return system_error("looking at");
    size_ = about.st_size;
    if (size_ > 0) DIVISI_TRY_STATUS(check_is_journal());
    DIVISI_TRY_STATUS(cut_broken_transaction());
    if (size_ > 0) return {};
    changes_ = heads_ = {};
    out_ = journal_text(JournalHeader{}).value_or("");
    out_lines_ = 1;
    DIVISI_TRY_STATUS(write_out());
    out_.clear();
    out_lines_ = 0;
    return {};
  }

  // Before anything is cut: whether it is ours at all.
  Status check_is_journal() const {
    constexpr std::string_view kStart = R"({"op":"journal")";
    std::array<char, kStart.size()> start{};
    const ssize_t n = ::pread(file_, start.data(), start.size(), 0);
    const std::string_view found(start.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    return kStart.starts_with(found) && !found.empty() ? Status() : not_ours();
  }

  Status not_ours() const {
    return make_status(Code::kInvalid, "{} is not a journal of studies: give another path", path_);
  }

  Status cut_broken_transaction() {
    std::int64_t end = size_;
    std::string block;
    while (end > 0) {
      const std::int64_t start = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(kBlock));
      block.resize(static_cast<std::size_t>(end - start));
      if (::pread(file_, block.data(), block.size(), start) != end - start) {
        return system_error("reading");
      }
      const std::size_t last = last_end(block);
      if (last != std::string::npos) {
        end = start + static_cast<std::int64_t>(last);
        break;
      }
      end = start == 0 ? 0 : start + 1;  // what stands before the first byte decides about it
    }
    if (end == size_) return {};
    if (::ftruncate(file_, end) != 0) return system_error("repairing");
    size_ = end;
    return {};
  }

  // Behind the last newline of the block that ends a transaction; npos if there is none.
  static std::size_t last_end(const std::string& block) {
    std::size_t newline = block.rfind('\n');
    while (newline != std::string::npos && newline > 0) {
      if (block[newline - 1] != ' ') return newline + 1;
      newline = block.rfind('\n', newline - 1);
    }
    return std::string::npos;
  }

  void put(const std::string& text) {
    if (!out_.empty()) out_.insert(out_.size() - 1, 1, ' ');  // another line follows
    out_ += text;
    ++out_lines_;
  }

  // All lines, or none.
  Status write_out() {
    std::string_view rest = out_;
    while (!rest.empty()) {
      const ssize_t n = ::write(file_, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return undone(system_error("writing"));
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
    if (forces_ && ::fdatasync(file_) != 0) return undone(system_error("forcing to the disk"));
    if (changes_.offset == size_) pass_own();
    size_ += static_cast<std::int64_t>(out_.size());
    return {};
  }

  void pass_own() {
    std::string_view rest = out_;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n') + 1);
      changes_.pass(line);
      rest.remove_prefix(line.size());
    }
  }

  Status undone(const Status& failed) const {
    return ::ftruncate(file_, size_) == 0 ? failed : failed.with_context("and not undone");
  }

  void take_head(const JournalLine& head) {
    if (const auto* entry = std::get_if<Entry>(&head)) {
      entries_.push_back(*entry);
      last_study_ = std::max(last_study_, entry->id);
    } else if (const auto* removal = std::get_if<JournalRemoval>(&head)) {
      std::erase_if(entries_, [&](const Entry& one) { return one.id == removal->study; });
    }
  }

  // Gives every line of whole transactions after the cursor, which moves along.
  template <class Take>
  Status scan(Cursor& cursor, const Take& take) {
    std::string pending;       // from the cursor on
    std::size_t begin = 0;     // of what was not taken
    std::size_t searched = 0;  // up to where there is no end of a transaction
    while (true) {
      pending.erase(0, begin);
      searched -= begin;
      begin = 0;
      const std::size_t had = pending.size();
      pending.resize(had + kBlock);
      const ssize_t n = ::pread(file_, pending.data() + had, kBlock,
                                cursor.offset + static_cast<std::int64_t>(had));
      if (n < 0) return system_error("reading");
      pending.resize(had + static_cast<std::size_t>(n));
      if (n == 0) return {};
      while (find_end(pending, searched)) {
        DIVISI_TRY_STATUS(
            take_lines(cursor, std::string_view(pending).substr(begin, searched - begin), take));
        begin = searched;
      }
    }
  }

  // Moves `at` behind the next line that ends a transaction; false: to the end of the text.
  static bool find_end(const std::string& text, std::size_t& at) {
    while (true) {
      const std::size_t newline = text.find('\n', at);
      at = newline == std::string::npos ? text.size() : newline + 1;
      if (newline == std::string::npos) return false;
      if (newline == 0 || text[newline - 1] != ' ') return true;
    }
  }

  template <class Take>
  Status take_lines(Cursor& cursor, std::string_view lines, const Take& take) {
    while (!lines.empty()) {
      const std::string_view whole = lines.substr(0, lines.find('\n') + 1);
      const std::string_view line = whole.substr(0, whole.size() - 1);
      ++cursor.line;
      Status taken = cursor.line == 1 ? take_first(line) : take(line);
      --cursor.line;
      if (!taken.ok()) {
        if (taken.code() == Code::kNotFound || cursor.line == 0) return taken;
        return make_status(taken.code(), "{}, line {}: {}", path_, cursor.line + 1,
                           taken.message());
      }
      cursor.pass(whole);
      lines.remove_prefix(whole.size());
    }
    return {};
  }

  Status take_first(std::string_view text) const {
    const Result<JournalLine> line = parse_journal_line(text);
    const auto* header = line ? std::get_if<JournalHeader>(&*line) : nullptr;
    if (header == nullptr) return not_ours();
    if (header->version <= kJournalVersion) return {};
    return make_status(
        Code::kInvalid,
        "{} was written by a newer version of divisi (format {}; this one knows up to "
        "{}): update divisi, or use another file",
        path_, header->version, kJournalVersion);
  }

  const std::string path_;
  const int file_;
  const bool forces_;      // every commit to the disk
  std::int64_t size_ = 0;  // under the lock
  std::string out_;        // lines not yet written
  std::uint64_t out_lines_ = 0;
  Cursor changes_;
  Cursor heads_;
  std::vector<Entry> entries_;
  std::uint64_t last_study_ = 0;
};

}  // namespace

Result<std::unique_ptr<Log>> open_journal_log(const std::string& path, Access access, Fsync fsync) {
  const int flags = access == Access::kRead ? O_RDONLY : O_RDWR | O_CREAT | O_APPEND;
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (file >= 0) return std::make_unique<JournalLog>(path, file, fsync == Fsync::kAlways);
  if (errno == ENOENT && access == Access::kRead) {
    return failure(Code::kNotFound, "there is no study at {}", path);
  }
  return failure(errno == EACCES || errno == EROFS ? Code::kForbidden : Code::kInternal,
                 "the journal {} cannot be opened{}: {}", path,
                 access == Access::kRead ? "" : " for writing", errno_text(errno));
}

}  // namespace divisi::tune
