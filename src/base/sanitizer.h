// Which sanitizer this is compiled with. g++ and clang say it in different ways.
#pragma once

namespace divisi {

#if defined(__SANITIZE_ADDRESS__)
#define DIVISI_ASAN 1
#elif defined(__has_feature)
#define DIVISI_ASAN __has_feature(address_sanitizer)
#else
#define DIVISI_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define DIVISI_TSAN 1
#elif defined(__has_feature)
#define DIVISI_TSAN __has_feature(thread_sanitizer)
#else
#define DIVISI_TSAN 0
#endif

inline constexpr bool kAddressSanitizer = DIVISI_ASAN;
inline constexpr bool kThreadSanitizer = DIVISI_TSAN;
inline constexpr bool kSanitizer = DIVISI_ASAN || DIVISI_TSAN;  // everything is slower and larger

}  // namespace divisi
