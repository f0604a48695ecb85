// ScalarReader: the numbers of a TensorBoard event file, without TensorFlow.
//
//   ScalarReader reader("log/events.out.tfevents.1700000000.host.1");
//   for (const Scalar& scalar : reader.read()) ...
//   for (const Scalar& scalar : reader.read()) ...   // what was added since
#pragma once

#include "divisi/export.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace divisi {

// One number of an event file.
struct Scalar {
  std::string tag;        // its name
  std::int64_t step = 0;  // of the program that wrote it
  double value = 0;       // the number
  double time = 0;        // when it was written, in seconds since the epoch
};

// Reads a file that may still grow. A record that is not whole yet waits for the rest; a record
// with a wrong checksum ends the file, since what follows cannot be found. Not thread-safe.
class DIVISI_API ScalarReader {
 public:
  // The file need not be there yet.
  explicit ScalarReader(std::string path);
  ScalarReader(ScalarReader&&) noexcept;
  ScalarReader& operator=(ScalarReader&&) noexcept;
  ~ScalarReader();

  // What was written since the last call, some megabytes at most; nothing if there is nothing new.
  // Throws Error: a file that cannot be read, or that is not an event file from here on (once; then
  // there is nothing more).
  std::vector<Scalar> read();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
