// How arguments of a local emit reach a listener: by reference to what the emitter gave or to what
// was moved into the queue, converted only where the listener's parameter has another type.
#pragma once

#include "divisi/payload.h"

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace divisi::detail {

// What is known about a stored argument without knowing its type. A type has one ArgOps in each
// library that uses it, so equality is decided by `type`; the address is only a shortcut.
struct ArgOps {
  const std::type_info* type;
  std::string (*name)();
  void (*pack)(Packer&, const void*);                // null: no Coder
  Number (*number)(const void*);                     // null: no number
  std::string_view (*text)(const void*);             // null: no text
  std::span<const std::byte> (*bytes)(const void*);  // null: no bytes
};

// Without initialisers: emit keeps an array of them on its stack.
struct ArgRef {
  const ArgOps* ops;
  void* object;
  bool movable;  // the last listener may move from it
};

template <class T>
std::string name_of() {
  if constexpr (Encodable<T>) {
    return Coder<T>::name();
  } else {
    return demangled(typeid(T));
  }
}

template <class T>
constexpr ArgOps make_arg_ops() {
  ArgOps ops{&typeid(T), &name_of<T>, nullptr, nullptr, nullptr, nullptr};
  if constexpr (Encodable<T>) {
    ops.pack = [](Packer& packer, const void* object) {
      Coder<T>::pack(packer, *static_cast<const T*>(object));
    };
  }
  if constexpr (PlainInteger<T>) {
    ops.number = [](const void* object) {
      const T value = *static_cast<const T*>(object);
      if constexpr (std::signed_integral<T>) {
        return Number::of(std::int64_t{value});
      } else {
        return Number::of(std::uint64_t{value});
      }
    };
  } else if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
    ops.number = [](const void* object) {
      return Number::of(static_cast<double>(*static_cast<const T*>(object)));
    };
  }
  if constexpr (std::same_as<T, std::string> || std::same_as<T, std::string_view>) {
    ops.text = [](const void* object) -> std::string_view {
      return *static_cast<const T*>(object);
    };
  }
  if constexpr (std::same_as<T, Buffer>) {
    ops.bytes = [](const void* object) { return static_cast<const T*>(object)->bytes(); };
  } else if constexpr (BytesLike<T>) {
    ops.bytes = [](const void* object) -> std::span<const std::byte> {
      return *static_cast<const T*>(object);
    };
  }
  return ops;
}

template <class T>
inline constexpr ArgOps kArgOps = make_arg_ops<T>();

template <class T>
bool holds(const ArgRef& arg) {
  return arg.ops == &kArgOps<T> || *arg.ops->type == typeid(T);
}

[[noreturn]] DIVISI_API void argument_mismatch(const std::string& expected, const ArgRef& arg);
[[noreturn]] DIVISI_API void cannot_copy(const std::string& type);

// The argument as a T of its own. Throws PayloadError. A view refers to the argument, not to the
// conversion, so T must not be a view unless the argument is text or bytes.
template <class T>
T convert(const ArgRef& arg) {
  if constexpr (PlainInteger<T>) {
    if (arg.ops->number != nullptr) {
      return to_integer<T>(arg.ops->number(arg.object), integer_name<T>());
    }
  } else if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
    if (arg.ops->number != nullptr) return to_real<T>(arg.ops->number(arg.object));
  } else if constexpr (std::same_as<T, std::string> || std::same_as<T, std::string_view>) {
    if (arg.ops->text != nullptr) return T(arg.ops->text(arg.object));
  } else if constexpr (std::same_as<T, Buffer>) {
    if (arg.ops->bytes != nullptr) return Buffer::copy_of(arg.ops->bytes(arg.object));
  } else if constexpr (std::same_as<T, std::vector<std::byte>>) {
    if (arg.ops->bytes != nullptr) {
      const auto bytes = arg.ops->bytes(arg.object);
      return {bytes.begin(), bytes.end()};
    }
  } else if constexpr (std::same_as<T, std::span<const std::byte>>) {
    if (arg.ops->bytes != nullptr) return arg.ops->bytes(arg.object);
  }
  constexpr bool kIsView =
      std::same_as<T, std::string_view> || std::same_as<T, std::span<const std::byte>>;
  if constexpr (Decodable<T> && !kIsView) {
    if (arg.ops->pack != nullptr) {
      Packer packer;
      arg.ops->pack(packer, arg.object);
      Unpacker unpacker(packer.body(), packer.buffers());
      try {
        return Coder<T>::unpack(unpacker);
      } catch (const PayloadError& error) {
        // A mismatch of the whole is told in C++ types; one inside keeps its place.
        if (std::string_view(error.what()).starts_with("expected ")) {
          argument_mismatch(name_of<T>(), arg);
        }
        throw;
      }
    }
  }
  argument_mismatch(name_of<T>(), arg);
}

struct Positioned {
  const ArgRef& arg;
  std::size_t index;
};

// One parameter of a listener during one local call.
template <class Param>
class Bound {
  using T = std::remove_cvref_t<Param>;
  static_assert(!std::is_lvalue_reference_v<Param> ||
                    std::is_const_v<std::remove_reference_t<Param>>,
                "a listener takes its arguments by value, const reference or rvalue reference");

 public:
  explicit Bound(Positioned from) {
    const ArgRef& arg = from.arg;
    if (holds<T>(arg)) [[likely]] {
      object_ = static_cast<T*>(arg.object);
      movable_ = arg.movable;
      return;
    }
    try {
      object_ = &converted_.emplace(convert<T>(arg));
    } catch (const PayloadError& error) {
      rethrow_inside("argument " + std::to_string(from.index + 1), error);
    }
    movable_ = true;
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  Param get() {
    if constexpr (std::is_lvalue_reference_v<Param>) {
      return *object_;
    } else {
      if (movable_) return static_cast<T&&>(*object_);
      if constexpr (std::copy_constructible<T>) {
        if constexpr (std::is_rvalue_reference_v<Param>) {
          return std::move(converted_.emplace(*object_));
        } else {
          return *object_;
        }
      } else {
        cannot_copy(name_of<T>());
      }
    }
  }

 private:
  T* object_;
  bool movable_;
  std::optional<T> converted_;
};

}  // namespace divisi::detail
