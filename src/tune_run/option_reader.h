// Reads the options of an algorithm or a pruner; what nobody asked for is refused with the nearest
// name.
//
//   OptionReader read("algorithm grid", options);
//   read.flag("strict_budget", grid.strict_budget);
//   DIVISI_TRY_STATUS(read.finish());
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::tune_run {

class OptionReader {
 public:
  OptionReader(std::string what, const json::Object& options)
      : what_(std::move(what)), options_(options) {}

  void flag(std::string_view name, bool& to);
  void whole(std::string_view name, std::int64_t& to);
  void whole(std::string_view name, int& to);
  void number(std::string_view name, double& to);
  // An unsigned number; true if it was there.
  bool seed(std::string_view name, std::uint64_t& to);
  // One of the names; the index.
  void one_of(std::string_view name, const std::vector<std::string>& names, std::size_t& to);

  // The first thing that was wrong.
  Status finish();

 private:
  const json::Value* take(std::string_view name);
  void wrong(std::string_view name, std::string_view wanted, const json::Value& value);

  std::string what_;
  const json::Object& options_;
  std::vector<std::string> known_;
  Status status_;
};

}  // namespace divisi::tune_run
