#include "runtime/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <ranges>
#include <vector>

namespace divisi::runtime {
namespace {

// The polynomial of iSCSI, bits reversed.
constexpr std::uint32_t kPolynomial = 0x82f63b78;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

template <class T>
void append_fixed(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// Protocol buffers: a key (field number and kind), then the value.
class Message {
 public:
  Message& varint(int field, std::uint64_t value) {
    key(field, 0);
    number(value);
    return *this;
  }
  Message& fixed64(int field, double value) {
    key(field, 1);
    append_fixed(bytes_, value);
    return *this;
  }
  Message& fixed32(int field, float value) {
    key(field, 5);
    append_fixed(bytes_, value);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    key(field, 2);
    number(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  Message& packed(int field, std::span<const double> values) {
    std::string packed;
    for (const double value : values) append_fixed(packed, value);
    return text(field, packed);
  }

  std::string take() { return std::move(bytes_); }

 private:
  void key(int field, int kind) { number(static_cast<std::uint64_t>(field << 3 | kind)); }
  void number(std::uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

std::string summary_event(double time, std::int64_t step, const Message& value) {
  Message summary;
  summary.message(1, value);
  Message event;
  event.fixed64(1, time).varint(2, static_cast<std::uint64_t>(step)).message(5, summary);
  return event.take();
}

// Bucket limits that grow by a tenth, on both sides of zero: TensorFlow's own.
std::vector<double> make_limits() {
  std::vector<double> positive;
  double next = 1e-12;
  while (next < 1e20) {
    positive.push_back(next);
    next *= 1.1;
  }
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> limits;
  for (const double limit : positive | std::views::reverse) limits.push_back(-limit);
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t sum = ~std::uint32_t{0};
  for (const char byte : bytes) {
    sum = kTable[(sum ^ static_cast<unsigned char>(byte)) & 0xff] ^ (sum >> 8);
  }
  return ~sum;
}

// Sums of data that contains sums would be weak.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8;
}

std::string tf_record(std::string_view data) {
  std::string record;
  record.reserve(data.size() + 16);
  append_fixed(record, static_cast<std::uint64_t>(data.size()));
  append_fixed(record, masked_crc(record));
  record += data;
  append_fixed(record, masked_crc(data));
  return record;
}

std::string file_version_event(double time) {
  Message event;
  event.fixed64(1, time).text(3, "brain.Event:2");
  return event.take();
}

std::string scalar_event(double time, std::string_view tag, double value, std::int64_t step) {
  Message summary_value;
  summary_value.text(1, tag).fixed32(2, static_cast<float>(value));
  return summary_event(time, step, summary_value);
}

std::string text_event(double time, std::string_view tag, std::string_view text,
                       std::int64_t step) {
  constexpr std::uint64_t kString = 7;  // DT_STRING
  Message dimension;
  dimension.varint(1, 1);
  Message shape;
  shape.message(2, dimension);
  Message tensor;
  tensor.varint(1, kString).message(2, shape).text(8, text);
  Message plugin;
  plugin.text(1, "text");
  Message metadata;
  metadata.message(1, plugin);
  Message value;
  value.text(1, tag).message(8, tensor).message(9, metadata);
  return summary_event(time, step, value);
}

std::string histogram_event(double time, std::string_view tag, std::span<const double> values,
                            std::int64_t step) {
  static const std::vector<double> limits = make_limits();
  std::vector<double> counts(limits.size());
  double count = 0;
  double sum = 0;
  double squares = 0;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const auto bucket = std::ranges::upper_bound(limits, value);
    const auto index = std::min(bucket - limits.begin(), std::ssize(limits) - 1);
    counts[static_cast<std::size_t>(index)] += 1;
    count += 1;
    sum += value;
    squares += value * value;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (count == 0) return {};
  // Empty buckets at both ends say nothing.
  const auto used = [](double each) { return each > 0; };
  const auto first = std::ranges::find_if(counts, used) - counts.begin();
  const auto last = counts.rend() - std::ranges::find_if(counts.rbegin(), counts.rend(), used);
  const auto begin = static_cast<std::size_t>(std::max<std::ptrdiff_t>(first - 1, 0));
  const auto size = static_cast<std::size_t>(last) - begin;
  Message histogram;
  histogram.fixed64(1, low).fixed64(2, high).fixed64(3, count).fixed64(4, sum).fixed64(5, squares);
  histogram.packed(6, std::span(limits).subspan(begin, size));
  histogram.packed(7, std::span(counts).subspan(begin, size));
  Message value;
  value.text(1, tag).message(5, histogram);
  return summary_event(time, step, value);
}

}  // namespace divisi::runtime
