// Quantity: an amount of a resource as Kubernetes writes it ("100m", "1.5Gi", "2e3").
//
//   DIVISI_TRY(json::Quantity memory, json::Quantity::parse("1.5Gi"));
//   memory += other;
//   memory.to_string();   // "1536Mi"
//
// Exact: a count of billionths (nano is the smallest unit, finer amounts are rounded away from
// zero, as Kubernetes does). Amounts of 10^29 and more are refused when read; sums stop below it.
#pragma once

#include "base/status.h"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace divisi::json {

class Quantity {
 public:
  // The family of suffixes, remembered from the text and used again when printing.
  enum class Format { kDecimalSi, kBinarySi, kDecimalExponent };

  Quantity() = default;  // 0
  explicit Quantity(std::int64_t amount, Format format = Format::kDecimalSi);
  static Quantity from_milli(std::int64_t thousandths, Format format = Format::kDecimalSi);

  // kInvalid names the text and what is wrong with it (also for "-" and "Ki", which Kubernetes
  // reads as 0 against its own grammar). An amount with a binary suffix is capped at 2^63-1, as
  // Kubernetes does.
  static Result<Quantity> parse(std::string_view text);

  // The canonical form: no fraction, the largest suffix that loses nothing.
  std::string to_string() const;

  Format format() const noexcept { return format_; }
  bool is_zero() const noexcept { return nanos_ == 0; }
  int sign() const noexcept { return nanos_ == 0 ? 0 : (nanos_ < 0 ? -1 : 1); }

  // Whole units and thousandths, rounded away from zero, stopping at the ends of 64 bits.
  std::int64_t value() const noexcept;
  std::int64_t milli_value() const noexcept;
  double to_double() const noexcept;

  // A zero takes the format of what is added to it.
  Quantity& operator+=(const Quantity& other) noexcept;
  Quantity& operator-=(const Quantity& other) noexcept;
  friend Quantity operator+(Quantity a, const Quantity& b) noexcept { return a += b; }
  friend Quantity operator-(Quantity a, const Quantity& b) noexcept { return a -= b; }
  Quantity operator-() const noexcept;

  // By amount: 1 and 1000m are equal.
  friend bool operator==(const Quantity& a, const Quantity& b) noexcept {
    return a.nanos_ == b.nanos_;
  }
  friend std::strong_ordering operator<=>(const Quantity& a, const Quantity& b) noexcept {
    return a.nanos_ <=> b.nanos_;
  }

 private:
  __extension__ using Nanos = __int128;

  Quantity(Nanos nanos, Format format, int) : nanos_(nanos), format_(format) {}

  Nanos nanos_ = 0;
  Format format_ = Format::kDecimalSi;
};

}  // namespace divisi::json
