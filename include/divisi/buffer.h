// Buffer: reference-counted bytes that travel between threads and processes without a copy.
//
//   divisi::Buffer weights(100 << 20);            // page-aligned from 4 KiB on
//   fill(weights.mutable_data(), weights.size());
//   task.emit("weights", weights);                // the bytes are not copied into the message
//
// A Buffer is a handle: copies share the bytes. Write to it only before it is first sent or
// copied; from then on every holder may be reading. Handles are as thread-safe as shared_ptr.
#pragma once

#include "divisi/export.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

namespace divisi {

namespace detail {

// The shared part. `release` frees the bytes and the block itself.
struct BufferBlock {
  std::atomic<std::uint32_t> references{
      1};  // acq_rel on the way down: the last holder sees all writes
  std::byte* data = nullptr;
  std::size_t size = 0;
  void (*release)(BufferBlock*) = nullptr;
};

}  // namespace detail

class DIVISI_API Buffer {
 public:
  Buffer() noexcept = default;

  // Uninitialised bytes; page-aligned when `size` is 4 KiB or more (a copy to an unaligned
  // target can be 20 times slower), recycled through a small pool.
  explicit Buffer(std::size_t size);

  // A new Buffer with these contents.
  static Buffer copy_of(std::span<const std::byte> bytes);
  static Buffer copy_of(std::string_view text);

  // Bytes owned by somebody else; `release` runs when the last handle goes, on any thread.
  static Buffer wrap(void* data, std::size_t size, std::function<void()> release);

  // Takes over one reference of a block made elsewhere.
  static Buffer adopt(detail::BufferBlock* block, std::size_t offset, std::size_t size) noexcept;

  Buffer(const Buffer& other) noexcept
      : block_(other.block_), data_(other.data_), size_(other.size_) {
    if (block_ != nullptr) block_->references.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (block_ != nullptr && block_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      block_->release(block_);
    }
  }

  // The contents; mutable_data is for the one who fills a new Buffer:
  const std::byte* data() const noexcept { return data_; }
  std::byte* mutable_data() noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }

  // A part of the same bytes; shares ownership. `offset + size` must lie inside.
  Buffer slice(std::size_t offset, std::size_t size) const;

 private:
  detail::BufferBlock* block_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace divisi
