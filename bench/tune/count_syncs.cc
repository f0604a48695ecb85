// Preloaded into a program, counts what it forces to the disk. bench_syncs() tells how often so
// far.
#include <atomic>
#include <cstddef>
#include <dlfcn.h>

namespace {

std::atomic<long> count{0};

template <class Function>
Function counted(const char* name) {
  ++count;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): how dlsym gives a function
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

long bench_syncs() {
  return count;
}

int fsync(int file) {
  return counted<int (*)(int)>("fsync")(file);
}

int fdatasync(int file) {
  return counted<int (*)(int)>("fdatasync")(file);
}

int msync(void* address, std::size_t length, int flags) {
  return counted<int (*)(void*, std::size_t, int)>("msync")(address, length, flags);
}
}
