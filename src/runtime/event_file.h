// The records of a TensorBoard event file: TFRecord frames round protocol buffers of TensorFlow's
// Event, written by hand because the messages are few and small.
//
//   record  = length (u64) crc(length) (u32) data crc(data) (u32), little-endian, both sums
//             masked CRC-32C
//   Event   = 1 wall_time double, 2 step int64, 3 file_version string, 5 summary
//   Summary = 1 repeated Value: 1 tag string, 2 simple_value float, 5 histo, 8 tensor, 9 metadata
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace divisi::runtime {

std::uint32_t crc32c(std::string_view bytes);
// As TensorFlow has it.
std::uint32_t masked_crc(std::string_view bytes);

// One frame.
std::string tf_record(std::string_view data);

// Events. `time`: seconds since the epoch.
std::string file_version_event(double time);
std::string scalar_event(double time, std::string_view tag, double value, std::int64_t step);
std::string text_event(double time, std::string_view tag, std::string_view text, std::int64_t step);
// Of the finite values; empty when there is none.
std::string histogram_event(double time, std::string_view tag, std::span<const double> values,
                            std::int64_t step);

}  // namespace divisi::runtime
