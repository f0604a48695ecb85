// RecordQueue: a first-in-first-out queue of records of different sizes, in chunks of memory that
// never move. A local trigger stands in it with its arguments, so that an emit allocates nothing;
// a batch of remote events is a pointer. Not thread-safe.
#pragma once

#include "divisi/detail/emission.h"
#include "event/event_table.h"
#include "event/remote_event.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace divisi::event {

// One entry of the queue; stored arguments follow it.
struct alignas(std::max_align_t) Record {
  EventEntry* entry = nullptr;                     // null: a batch
  const divisi::detail::StoredOps* ops = nullptr;  // of the stored arguments
  std::unique_ptr<Kwargs> kwargs;
  std::unique_ptr<Batch> batch;

  void* stored() noexcept { return this + 1; }
};

class RecordQueue {
 public:
  RecordQueue() noexcept = default;
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }

  // Moves the stored arguments in.
  void push(EventEntry& entry, const divisi::detail::StoredOps& ops, void* stored,
            std::unique_ptr<Kwargs> kwargs);
  void push(std::unique_ptr<Batch> batch);

  Record& front() noexcept;
  void pop() noexcept;  // destroys the first record and its arguments

  // Exchanges the records, not the spare memory.
  void swap_records(RecordQueue& other) noexcept;
  // Takes over the memory that `other` has emptied.
  void take_spare(RecordQueue& other) noexcept;

 private:
  // Large enough for hundreds of triggers, small enough to stay in the second-level cache.
  static constexpr std::size_t kChunkBytes = std::size_t{64} * 1024;
  // Beyond this many, empty chunks are freed: a burst's memory does not stay for ever.
  static constexpr int kMaxSpare = 16;

  struct Chunk {
    std::unique_ptr<Chunk> next;
    std::uint32_t begin = 0;  // offsets into data
    std::uint32_t end = 0;
    alignas(std::max_align_t) std::byte data[kChunkBytes];
  };

  Record* allocate(std::size_t stored_size);
  static std::size_t footprint(std::size_t stored_size) noexcept;
  void add_spare(std::unique_ptr<Chunk> chunk) noexcept;

  std::unique_ptr<Chunk> first_;
  Chunk* last_ = nullptr;
  std::size_t count_ = 0;
  std::unique_ptr<Chunk> spare_;
  int spare_count_ = 0;
};

}  // namespace divisi::event
