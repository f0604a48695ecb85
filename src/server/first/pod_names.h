// Names of workers that several servers, and several tries, choose alike. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace divisi::server::first {

// The same number for the same text on every machine; spread well enough for name suffixes.
constexpr std::uint64_t name_seed(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  hash = (hash ^ (hash >> 30U)) * 0xbf58476d1ce4e5b9U;  // and the end of splitmix64
  hash = (hash ^ (hash >> 27U)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31U);
}

}  // namespace divisi::server::first
