#include "divisi/buffer.h"

#include "base/status.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace divisi {

namespace {

using detail::BufferBlock;

constexpr std::size_t kPage = 4096;

// Blocks of 4 KiB to 4 MiB are kept in power-of-two classes: a fresh mapping of a megabyte costs
// more (page faults) than copying into it. At most kPooledBytes rest in a class.
constexpr int kSmallestClass = 12;
constexpr int kLargestClass = 22;
constexpr std::size_t kPooledBytes = 8 << 20;

class Pool {
 public:
  // The pool outlives every static object that might still hold a Buffer.
  static Pool& instance() {
    static Pool* const pool = new Pool;
    return *pool;
  }

  std::byte* take(int size_class) {
    {
      const std::lock_guard lock(mutex_);
      auto& free = free_[index(size_class)];
      if (!free.empty()) {
        std::byte* const data = free.back();
        free.pop_back();
        return data;
      }
    }
    return allocate(std::size_t{1} << size_class);
  }

  void give(int size_class, std::byte* data) {
    {
      const std::lock_guard lock(mutex_);
      auto& free = free_[index(size_class)];
      if ((free.size() + 1) << size_class <= kPooledBytes) {
        free.push_back(data);
        return;
      }
    }
    std::free(data);
  }

  std::mutex& mutex() { return mutex_; }

  static std::byte* allocate(std::size_t size) {
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(kPage, size));
    if (data == nullptr) throw std::bad_alloc();
    return data;
  }

 private:
  static std::size_t index(int size_class) {
    return static_cast<std::size_t>(size_class - kSmallestClass);
  }

  std::mutex mutex_;
  std::array<std::vector<std::byte*>, kLargestClass - kSmallestClass + 1> free_;  // by mutex_
};

// Larger blocks stand on huge pages, and the two freed last are kept: the next model or batch of
// frames is about as large, and faulting in 100 MiB takes longer than receiving it. What is kept
// the kernel may take back when it needs it (MADV_FREE).
class LargePool {
 public:
  struct Block {
    std::byte* data;
    std::size_t capacity;
  };

  static LargePool& instance() {
    static auto* const pool = new LargePool;
    return *pool;
  }

  Block take(std::size_t size) {
    const std::size_t capacity = (size + kHugePage - 1) / kHugePage * kHugePage;
    {
      const std::lock_guard lock(mutex_);
      for (Block& kept : kept_) {
        if (kept.data == nullptr || kept.capacity < capacity || kept.capacity / 2 > capacity)
          continue;
        return std::exchange(kept, {});
      }
    }
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(kHugePage, capacity));
    if (data == nullptr) throw std::bad_alloc();
    ::madvise(data, capacity, MADV_HUGEPAGE);  // only faster
    return {data, capacity};
  }

  void give(Block block) {
    if (block.capacity <= kMostKept) {
      ::madvise(block.data, block.capacity, MADV_FREE);
      const std::lock_guard lock(mutex_);
      std::swap(block, kept_[oldest_]);
      oldest_ = (oldest_ + 1) % kept_.size();
    }
    std::free(block.data);
  }

  std::mutex& mutex() { return mutex_; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr std::size_t kMostKept = std::size_t{256} << 20;

  std::mutex mutex_;
  std::array<Block, 2> kept_{};  // guarded by mutex_
  std::size_t oldest_ = 0;       // guarded by mutex_
};

// The forking thread holds both over the fork: the child finds them whole and free. Before main, so
// that handlers of those who take these mutexes under their own come first (task_core.cc).
[[gnu::constructor(500)]] void hold_over_fork() {
  Pool::instance();
  LargePool::instance();
  const auto release = [] {
    LargePool::instance().mutex().unlock();
    Pool::instance().mutex().unlock();
  };
  ::pthread_atfork(
      [] {
        Pool::instance().mutex().lock();
        LargePool::instance().mutex().lock();
      },
      release, release);
}

struct LargeBlock : BufferBlock {
  std::size_t capacity = 0;
};

struct WrappedBlock : BufferBlock {
  std::function<void()> on_release;
};

int class_of(std::size_t size) {
  return std::max(kSmallestClass, static_cast<int>(std::bit_width(size - 1)));
}

void release_small(BufferBlock* block) {
  block->~BufferBlock();
  std::free(block);
}
void release_pooled(BufferBlock* block) {
  Pool::instance().give(class_of(block->size), block->data);
  delete block;
}
void release_large(BufferBlock* block) {
  auto* const large = static_cast<LargeBlock*>(block);
  LargePool::instance().give({large->data, large->capacity});
  delete large;
}
void release_wrapped(BufferBlock* block) {
  auto* const wrapped = static_cast<WrappedBlock*>(block);
  if (wrapped->on_release) wrapped->on_release();
  delete wrapped;
}

BufferBlock* make_block(std::size_t size) {
  if (size < kPage) {  // header and bytes in one allocation
    void* const memory = std::malloc(sizeof(BufferBlock) + size);
    if (memory == nullptr) throw std::bad_alloc();
    auto* const block = new (memory) BufferBlock;
    block->data = static_cast<std::byte*>(memory) + sizeof(BufferBlock);
    block->release = release_small;
    return block;
  }
  if (class_of(size) <= kLargestClass) {
    auto* const block = new BufferBlock;
    block->data = Pool::instance().take(class_of(size));
    block->release = release_pooled;
    return block;
  }
  const LargePool::Block memory = LargePool::instance().take(size);
  auto* const block = new LargeBlock;
  block->data = memory.data;
  block->capacity = memory.capacity;
  block->release = release_large;
  return block;
}

}  // namespace

Buffer::Buffer(std::size_t size) {
  if (size == 0) return;
  block_ = make_block(size);
  block_->size = size;
  data_ = block_->data;
  size_ = size;
}

Buffer Buffer::copy_of(std::span<const std::byte> bytes) {
  Buffer copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.mutable_data(), bytes.data(), bytes.size());
  return copy;
}

Buffer Buffer::copy_of(std::string_view text) {
  return copy_of(std::as_bytes(std::span(text)));
}

Buffer Buffer::wrap(void* data, std::size_t size, std::function<void()> release) {
  auto* const block = new WrappedBlock;
  block->data = static_cast<std::byte*>(data);
  block->size = size;
  block->release = release_wrapped;
  block->on_release = std::move(release);
  return adopt(block, 0, size);
}

Buffer Buffer::adopt(BufferBlock* block, std::size_t offset, std::size_t size) noexcept {
  Buffer buffer;
  buffer.block_ = block;
  buffer.data_ = block->data + offset;
  buffer.size_ = size;
  return buffer;
}

Buffer Buffer::slice(std::size_t offset, std::size_t size) const {
  DIVISI_CHECK(offset <= size_ && size <= size_ - offset, "a slice lies inside its buffer");
  Buffer part = *this;
  part.data_ += offset;
  part.size_ = size;
  return part;
}

}  // namespace divisi
