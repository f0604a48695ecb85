// Attribute: a value of any type, as Python attributes are. Fields whose type the application
// chooses (train_data, obs, ...) and attributes added at run time are of this type.
//
// Copies share the value, as names in Python do. Not thread-safe.
#pragma once

#include "divisi/coder.h"
#include "divisi/export.h"
#include "divisi/value.h"

#include <concepts>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace divisi {

class DIVISI_API Attribute {
 public:
  Attribute() noexcept = default;
  Attribute(std::nullptr_t) noexcept {}  // None

  // Of any value; text becomes std::string.
  template <class T>
    requires(!std::same_as<std::decay_t<T>, Attribute> &&
             !std::same_as<std::decay_t<T>, std::nullptr_t>)
  Attribute(T&& value)  // NOLINT(google-explicit-constructor): ctx.obs = observation
      : value_(std::make_shared<StoredType<std::decay_t<T>>>(std::forward<T>(value))),
        type_(&typeid(StoredType<std::decay_t<T>>)) {
    using Stored = StoredType<std::decay_t<T>>;
    if constexpr (Encodable<Stored>) {
      pack_ = [](Packer& packer, const void* from) {
        Coder<Stored>::pack(packer, *static_cast<const Stored*>(from));
      };
    }
  }

  // Whether there is a value; reset() takes it away:
  bool empty() const noexcept { return value_ == nullptr; }
  explicit operator bool() const noexcept { return !empty(); }
  void reset() noexcept { *this = Attribute(); }

  // The value itself: writing through the reference is seen by every copy of this Attribute. A
  // value that came over the wire is turned into T by the first get. Throws UsageError naming
  // both types.
  template <class T>
  T& get() {
    if (type_ != nullptr && *type_ == typeid(Value) && !std::same_as<T, Value>) {
      if constexpr (Decodable<T>) *this = static_cast<const Value*>(value_.get())->as<T>();
    }
    check(typeid(T));
    return *static_cast<T*>(value_.get());
  }

  // Whether the value is a T as it is now.
  template <class T>
  bool holds() const noexcept {
    return type_ != nullptr && *type_ == typeid(T);
  }

  // Throws UsageError when the type has no Coder.
  void pack(Packer& packer) const;
  // What pack() wrote: a Value until the first get().
  static Attribute unpack(Unpacker& unpacker);

 private:
  // Text is kept as std::string, whichever way it was written.
  template <class T>
  using StoredType = std::conditional_t<std::same_as<T, const char*> || std::same_as<T, char*> ||
                                            std::same_as<T, std::string_view>,
                                        std::string, T>;

  void check(const std::type_info& wanted) const;

  std::shared_ptr<void> value_;
  const std::type_info* type_ = nullptr;
  void (*pack_)(Packer&, const void*) = nullptr;
};

template <>
struct Coder<Attribute> {
  static std::string name() { return "any value"; }
  static void pack(Packer& packer, const Attribute& value) { value.pack(packer); }
  static Attribute unpack(Unpacker& unpacker) { return Attribute::unpack(unpacker); }
};

}  // namespace divisi
