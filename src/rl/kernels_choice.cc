#include "rl/kernels.h"

#include <array>

namespace divisi::rl {

namespace kernels_baseline {
extern const Kernels kTable;
}
#if defined(DIVISI_KERNELS_X86)
namespace kernels_v3 {
extern const Kernels kTable;
}
namespace kernels_v4 {
extern const Kernels kTable;
}
#endif

namespace {

struct Runnable {
  std::array<const Kernels*, 3> levels{};
  std::size_t count = 0;

  Runnable() noexcept {
    levels[count++] = &kernels_baseline::kTable;
#if defined(DIVISI_KERNELS_X86)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2")) {
      return;
    }
    levels[count++] = &kernels_v3::kTable;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl")) {
      return;
    }
    levels[count++] = &kernels_v4::kTable;
#endif
  }
};

const Runnable& runnable() noexcept {
  static const Runnable found;
  return found;
}

}  // namespace

std::span<const Kernels* const> runnable_kernels() noexcept {
  return {runnable().levels.data(), runnable().count};
}

const Kernels& kernels() noexcept {
  return *runnable().levels[runnable().count - 1];
}

}  // namespace divisi::rl
