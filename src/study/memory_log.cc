// A log that ends with its object.
#include "study/log.h"

namespace divisi::tune {
namespace {

class MemoryLog final : public Log {
 public:
  Status lock() override { return {}; }
  Status commit() override { return {}; }
  void abandon() override {}

  Result<std::uint64_t> add_study(const StudySpec& spec) override {
    entries_.push_back({.id = ++last_study_, .spec = spec});
    return last_study_;
  }

  Status remove_study(std::uint64_t id) override {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.id == id; });
    return {};
  }

  // Nothing is kept: the only reader is the one who appends.
  Status append(std::uint64_t, Change& change) override {
    change.number = ++last_change_;
    return {};
  }

  Result<std::vector<Entry>> studies() override { return entries_; }
  Status read(std::uint64_t, std::uint64_t, const Sink&) override { return {}; }
  Status sync() override { return {}; }

 private:
  std::vector<Entry> entries_;
  std::uint64_t last_study_ = 0;
  std::uint64_t last_change_ = 0;
};

}  // namespace

std::unique_ptr<Log> make_memory_log() {
  return std::make_unique<MemoryLog>();
}

}  // namespace divisi::tune
