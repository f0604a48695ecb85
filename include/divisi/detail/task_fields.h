// How a Context reaches the fields of the classes derived from it by name: the machinery behind
// DIVISI_CONTEXT.
#pragma once

#include "divisi/coder.h"
#include "divisi/fields.h"

#include <string_view>
#include <type_traits>
#include <typeinfo>

namespace divisi::detail {

// What can be done with a field of some type. Null: that type cannot do it.
struct FieldType {
  const std::type_info* type;
  void (*copy)(void* to, const void* from);
  void (*pack)(Packer& packer, const void* from);
  void (*unpack)(Unpacker& unpacker, void* to);
};

template <class T>
constexpr FieldType field_type() {
  FieldType type{&typeid(T), nullptr, nullptr, nullptr};
  if constexpr (std::is_copy_assignable_v<T>) {
    type.copy = [](void* to, const void* from) {
      *static_cast<T*>(to) = *static_cast<const T*>(from);
    };
  }
  if constexpr (Decodable<T>) {
    type.pack = [](Packer& packer, const void* from) {
      Coder<T>::pack(packer, *static_cast<const T*>(from));
    };
    type.unpack = [](Unpacker& unpacker, void* to) {
      *static_cast<T*>(to) = Coder<T>::unpack(unpacker);
    };
  }
  return type;
}

template <class T>
inline constexpr FieldType kFieldType = field_type<T>();

struct ContextField {
  std::string_view name;
  void* address;
  const FieldType* type;
};

class FieldVisitor {
 public:
  template <class T>
  void operator()(std::string_view name, T& field) {
    visit(ContextField{name, &field, &kFieldType<T>});
  }

 protected:
  ~FieldVisitor() = default;

 private:
  virtual void visit(const ContextField& field) = 0;
};

}  // namespace divisi::detail

#define DIVISI_DETAIL_VISIT_EACH(field, ...) \
  divisi_visitor(#field, field);             \
  __VA_OPT__(DIVISI_DETAIL_VISIT_AGAIN DIVISI_DETAIL_PARENS(__VA_ARGS__))
#define DIVISI_DETAIL_VISIT_AGAIN() DIVISI_DETAIL_VISIT_EACH
