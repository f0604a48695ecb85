#include "event/record_queue.h"

#include <new>
#include <utility>

namespace divisi::event {

namespace {

// Frees a chain one by one: the destructor of a long one would recurse.
template <class Chunk>
void release(std::unique_ptr<Chunk> chain) noexcept {
  while (chain != nullptr) chain = std::move(chain->next);
}

}  // namespace

RecordQueue::~RecordQueue() {
  while (!empty()) pop();
  release(std::move(first_));
  release(std::move(spare_));
}

std::size_t RecordQueue::footprint(std::size_t stored_size) noexcept {
  constexpr std::size_t kAlign = alignof(Record);
  return sizeof(Record) + (stored_size + kAlign - 1) / kAlign * kAlign;
}

Record* RecordQueue::allocate(std::size_t stored_size) {
  const std::size_t size = footprint(stored_size);
  if (last_ == nullptr || kChunkBytes - last_->end < size) {
    std::unique_ptr<Chunk> chunk = std::move(spare_);
    if (chunk != nullptr) {
      spare_ = std::move(chunk->next);
      --spare_count_;
    } else {
      // NOLINTNEXTLINE(modernize-make-unique): that would clear 64 KiB
      chunk.reset(new Chunk);
    }
    Chunk* added = chunk.get();
    (last_ == nullptr ? first_ : last_->next) = std::move(chunk);
    last_ = added;
  }
  auto* record = ::new (last_->data + last_->end) Record;
  last_->end += static_cast<std::uint32_t>(size);
  ++count_;
  return record;
}

void RecordQueue::push(EventEntry& entry, const divisi::detail::StoredOps& ops, void* stored,
                       std::unique_ptr<Kwargs> kwargs) {
  Record* record = allocate(ops.size);
  record->entry = &entry;
  record->ops = &ops;
  record->kwargs = std::move(kwargs);
  ops.move(record->stored(), stored);
}

void RecordQueue::push(std::unique_ptr<Batch> batch) {
  allocate(0)->batch = std::move(batch);
}

Record& RecordQueue::front() noexcept {
  return *std::launder(reinterpret_cast<Record*>(first_->data + first_->begin));
}

void RecordQueue::pop() noexcept {
  Record& record = front();
  const std::size_t stored_size = record.ops != nullptr ? record.ops->size : 0;
  if (record.ops != nullptr) record.ops->destroy(record.stored());
  record.~Record();
  --count_;
  first_->begin += static_cast<std::uint32_t>(footprint(stored_size));
  if (first_->begin != first_->end) return;
  std::unique_ptr<Chunk> done = std::move(first_);
  first_ = std::move(done->next);
  if (first_ == nullptr) last_ = nullptr;
  add_spare(std::move(done));
}

void RecordQueue::swap_records(RecordQueue& other) noexcept {
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(count_, other.count_);
}

void RecordQueue::add_spare(std::unique_ptr<Chunk> chunk) noexcept {
  if (spare_count_ >= kMaxSpare) return;
  chunk->begin = chunk->end = 0;
  chunk->next = std::move(spare_);
  spare_ = std::move(chunk);
  ++spare_count_;
}

void RecordQueue::take_spare(RecordQueue& other) noexcept {
  while (other.spare_ != nullptr) {
    std::unique_ptr<Chunk> chunk = std::move(other.spare_);
    other.spare_ = std::move(chunk->next);
    add_spare(std::move(chunk));
  }
  other.spare_count_ = 0;
}

}  // namespace divisi::event
