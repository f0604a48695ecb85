// DIVISI_FIELDS: lets a plain struct travel in events.
//
//   struct Point { double x = 0; double y = 0; };
//   DIVISI_FIELDS(Point, x, y)          // at namespace scope, in the namespace of the struct
//
// The struct becomes a MessagePack map from field name to value. A reader ignores names it does not
// know, so fields can be added; a field that is missing is an error that names it. The struct must
// be default-constructible. Up to 256 fields.
#pragma once

#include <string_view>
#include <tuple>

namespace divisi::detail {

template <class Struct, class Member>
struct Field {
  std::string_view name;
  Member Struct::* member;
};
template <class Struct, class Member>
Field(std::string_view, Member Struct::*) -> Field<Struct, Member>;

}  // namespace divisi::detail

#define DIVISI_FIELDS(Type, ...)                                                          \
  [[maybe_unused]] inline constexpr std::string_view divisi_type_name(const Type*) {      \
    return #Type;                                                                         \
  }                                                                                       \
  [[maybe_unused]] inline constexpr auto divisi_fields(const Type*) {                     \
    using DivisiStruct [[maybe_unused]] = Type;                                           \
    return std::tuple{__VA_OPT__(DIVISI_DETAIL_EXPAND(DIVISI_DETAIL_EACH(__VA_ARGS__)))}; \
  }

// One field, then the rest by way of a rescan: the usual C++20 recursion over __VA_ARGS__.
#define DIVISI_DETAIL_EACH(field, ...)                              \
  ::divisi::detail::Field{#field, &DivisiStruct::field} __VA_OPT__( \
      , DIVISI_DETAIL_AGAIN DIVISI_DETAIL_PARENS(__VA_ARGS__))
#define DIVISI_DETAIL_AGAIN() DIVISI_DETAIL_EACH
#define DIVISI_DETAIL_PARENS ()
#define DIVISI_DETAIL_EXPAND(...) \
  DIVISI_DETAIL_EXPAND4(          \
      DIVISI_DETAIL_EXPAND4(DIVISI_DETAIL_EXPAND4(DIVISI_DETAIL_EXPAND4(__VA_ARGS__))))
#define DIVISI_DETAIL_EXPAND4(...) \
  DIVISI_DETAIL_EXPAND3(           \
      DIVISI_DETAIL_EXPAND3(DIVISI_DETAIL_EXPAND3(DIVISI_DETAIL_EXPAND3(__VA_ARGS__))))
#define DIVISI_DETAIL_EXPAND3(...) \
  DIVISI_DETAIL_EXPAND2(           \
      DIVISI_DETAIL_EXPAND2(DIVISI_DETAIL_EXPAND2(DIVISI_DETAIL_EXPAND2(__VA_ARGS__))))
#define DIVISI_DETAIL_EXPAND2(...) \
  DIVISI_DETAIL_EXPAND1(           \
      DIVISI_DETAIL_EXPAND1(DIVISI_DETAIL_EXPAND1(DIVISI_DETAIL_EXPAND1(__VA_ARGS__))))
#define DIVISI_DETAIL_EXPAND1(...) __VA_ARGS__
