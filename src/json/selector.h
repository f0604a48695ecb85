// Which objects are meant: by their labels, or by the values of their fields.
//
//   DIVISI_TRY(json::LabelSelector learners, json::LabelSelector::parse("app=rl,role in
//   (learner)")); if (learners.matches(*pod.find_path({"metadata", "labels"}))) ...
//
// Both have the text forms of Kubernetes' list requests and refuse what its API server refuses.
// Constant after construction, so they may be shared between threads.
#pragma once

#include "json/value.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::json {

using Labels = std::map<std::string, std::string, std::less<>>;

// "prefix/name" or "name": the prefix a DNS name of at most 253 bytes, the name at most 63 bytes of
// letters, digits, -, _ and . between letters or digits.
Status check_label_key(std::string_view key);
// The same alphabet, at most 63 bytes, or empty.
Status check_label_value(std::string_view value);

class LabelSelector {
 public:
  enum class Operator { kIn, kNotIn, kExists, kDoesNotExist, kGreater, kLess };
  struct Requirement {
    std::string key;
    Operator op = Operator::kExists;
    std::vector<std::string> values;  // sorted, none twice
    friend bool operator==(const Requirement&, const Requirement&) = default;
  };

  LabelSelector() = default;  // everything

  // "a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1"; the empty text selects everything.
  static Result<LabelSelector> parse(std::string_view text);
  // {"matchLabels": {...}, "matchExpressions": [{"key", "operator", "values"}]}. Null selects
  // nothing, an empty object everything, as in the API.
  static Result<LabelSelector> from_object(const Value& object);

  bool matches(const Labels& labels) const;
  bool matches(const Value& labels) const;  // an object of strings; null is no labels

  // Canonical: requirements sorted by key, `in` for several values. Reads back as an equal
  // selector. Not for a selector of nothing, which has no text.
  std::string to_string() const;

  bool selects_nothing() const noexcept { return nothing_; }
  const std::vector<Requirement>& requirements() const noexcept { return requirements_; }
  friend bool operator==(const LabelSelector&, const LabelSelector&) = default;

 private:
  std::vector<Requirement> requirements_;  // all must hold; sorted by key
  bool nothing_ = false;
};

class FieldSelector {
 public:
  struct Requirement {
    std::string path;  // dotted: "status.phase"
    std::string value;
    bool equal = true;
    friend bool operator==(const Requirement&, const Requirement&) = default;
  };

  FieldSelector() = default;  // everything

  // "metadata.name=x,status.phase!=Running", == for =, and \ before a \, = or , of a value.
  static Result<FieldSelector> parse(std::string_view text);

  // Absent fields read as "", numbers and booleans as they are printed.
  bool matches(const Value& object) const;
  std::string to_string() const;

  const std::vector<Requirement>& requirements() const noexcept { return requirements_; }
  friend bool operator==(const FieldSelector&, const FieldSelector&) = default;

 private:
  std::vector<Requirement> requirements_;
};

}  // namespace divisi::json
