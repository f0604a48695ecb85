// Where the changes of studies are kept: one interface, three back ends.
//
//   DIVISI_TRY_STATUS(log->lock());          // nobody else writes
//   DIVISI_TRY_STATUS(log->read(study, take));
//   DIVISI_TRY_STATUS(log->append(study, change));
//   DIVISI_TRY_STATUS(log->commit());        // all of it, or nothing
//
// One thread at a time, but for sync().
#pragma once

#include "base/status.h"
#include "study/change.h"

#include <functional>
#include <memory>

namespace divisi::tune {

class Log {
 public:
  struct Entry {
    std::uint64_t id = 0;
    StudySpec spec;
  };
  using Sink = std::function<Status(const Change&)>;

  virtual ~Log() = default;

  // Keeps other writers out, of this and of other processes; commit and abandon let them in. Under
  // Fsync::kAlways a commit is on the disk, or nothing of it is stored.
  virtual Status lock() = 0;
  virtual Status commit() = 0;
  virtual void abandon() = 0;

  // Between lock and commit. append gives the change its number.
  virtual Result<std::uint64_t> add_study(const StudySpec& spec) = 0;
  virtual Status remove_study(std::uint64_t id) = 0;
  virtual Status append(std::uint64_t study, Change& change) = 0;

  // The studies, the oldest first.
  virtual Result<std::vector<Entry>> studies() = 0;
  // The changes of a study after that number, in their order.
  virtual Status read(std::uint64_t study, std::uint64_t after, const Sink& sink) = 0;

  // Whether changes that were read have been taken back: all must be read again, from 0 on.
  virtual bool shrunk() const { return false; }

  // Forces what was committed to the disk. From any thread.
  virtual Status sync() = 0;
};

// How a log is opened.
enum class Access {
  kRead,   // it must be there; nothing is written
  kWrite,  // made if it is not there
};

// `sqlite:PATH`, `file:PATH`, `memory:` or a path with a telling end. Fails with one line: an
// unknown form, a network file system, a file that is not a study's.
Result<std::unique_ptr<Log>> open_log(const std::string& url, Access access, Fsync fsync);

// The three, for open_log and for tests.
std::unique_ptr<Log> make_memory_log();
Result<std::unique_ptr<Log>> open_journal_log(const std::string& path, Access access, Fsync fsync);
Result<std::unique_ptr<Log>> open_sqlite_log(const std::string& path, Access access, Fsync fsync);

}  // namespace divisi::tune
