// Fields: the typed members of one JSON object from outside, and the first that is of a wrong kind.
//
//   Status bad;
//   Fields task(object, "spec.tasks[1]", bad);
//   const int replicas = task.number("replicas", 1);
//   if (!bad.ok()) ...      // "spec.tasks[1].replicas must be a number, not a string"
//
// Reading goes on after a fault, with the value that stands for an absent one, so that a reader is
// straight-line code. Null means absent, as in the Kubernetes API.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

class Fields {
 public:
  // `object` and `bad` must live longer.
  Fields(const json::Value& object, std::string path, Status& bad);

  const std::string& path() const noexcept { return path_; }
  std::string at(std::string_view key) const;  // "spec.tasks[1].replicas"

  const json::Value* find(std::string_view key) const noexcept;  // null when absent or JSON's null
  bool has_null(std::string_view key) const noexcept;            // present, and JSON's null

  std::string text(std::string_view key, std::string_view otherwise = {});
  int number(std::string_view key, int otherwise);
  std::optional<int> number(std::string_view key);
  bool flag(std::string_view key, bool otherwise);

  Fields object(std::string_view key);                              // empty when absent
  Fields object(std::string_view key, const json::Value& instead);  // read from there
  std::vector<Fields> objects(std::string_view key);                // of an array
  std::vector<json::Value> values(std::string_view key);            // the same, as they are
  std::vector<std::string> texts(std::string_view key);             // of an array
  std::vector<int> numbers(std::string_view key);                   // of an array
  void require_text_map(std::string_view key);  // labels: every value is a string

 private:
  const json::Array& array(std::string_view key);
  std::optional<int> to_number(const json::Value& value, const std::string& path);
  void blame(const std::string& path, std::string_view wanted, const json::Value& found);

  const json::Value* object_;
  std::string path_;
  Status* bad_;
};

// Text from outside inside a message: in quotes, and not without end.
std::string quoted(std::string_view text);

}  // namespace divisi::dijob
