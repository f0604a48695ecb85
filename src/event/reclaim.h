// Readers without locks: what a reader may still be looking at is freed only when it is done.
//
//   { ReadSection reading;  const List* list = shared.load();  use(*list); }      // any thread
//   old = shared.exchange(next);  retire(old);                                    // a writer
//
// A section announces the epoch in which it began. retire() starts a new epoch and frees the
// object once no section of an earlier epoch is open: at once if nobody reads, else when
// the last such section ends. Sections nest; the outermost counts. Both the announcement and the
// loads and exchanges of shared pointers must be sequentially consistent: then either the
// reader sees the new pointer or the writer sees the reader. Sections should be short: an
// open one keeps everything retired after its begin. In a child of fork() the sections of threads
// that stayed with the parent count as ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace divisi::event {

namespace detail {

// One for each thread that ever read; handed on when a thread ends, never freed.
struct alignas(64) ReaderSlot {
  std::atomic<std::uint64_t> since{0};  // 0: not reading. Pairs with the scan in reclaim()
  int depth = 0;                        // owned by the thread
  bool taken = false;                   // guarded by the domain's mutex
};

ReaderSlot& register_reader();

// Initial-exec: a plain load relative to the thread pointer, also inside a shared library.
extern thread_local constinit ReaderSlot* reader_slot __attribute__((tls_model("initial-exec")));

extern std::atomic<std::uint64_t> epoch;    // advanced by retire()
extern std::atomic<bool> anything_retired;  // set by retire(), cleared by reclaim()

}  // namespace detail

// Frees what can be freed. Never call it with a lock held: destructors of user objects run here.
void reclaim() noexcept;

// Hands over an object that no new reader can reach. Frees nothing itself, so that it may be called
// under a lock: call reclaim() after.
void retire(std::shared_ptr<const void> object);

class ReadSection {
 public:
  ReadSection() noexcept
      : slot_(detail::reader_slot != nullptr ? *detail::reader_slot : detail::register_reader()) {
    if (slot_.depth++ == 0) slot_.since.store(detail::epoch.load());
  }
  ~ReadSection() {
    if (--slot_.depth != 0) return;
    slot_.since.store(0);
    if (detail::anything_retired.load()) [[unlikely]]
      reclaim();
  }
  ReadSection(const ReadSection&) = delete;
  ReadSection& operator=(const ReadSection&) = delete;

 private:
  detail::ReaderSlot& slot_;
};

}  // namespace divisi::event
