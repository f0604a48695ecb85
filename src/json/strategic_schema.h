// How the fields of Kubernetes' types are patched: a table of the facts that its Go types carry
// as patchStrategy and patchMergeKey. Inside src/json only.
#pragma once

#include "json/strategic.h"

#include <span>
#include <string_view>

namespace divisi::json {

struct TypeSchema;

struct FieldSchema {
  enum class Strategy {
    kDefault,  // objects are merged, lists taken as a whole
    kMerge,    // a list is merged, by the key of its elements or as a set of scalars
    kReplace   // an object is taken as a whole
  };

  std::string_view name;
  Strategy strategy = Strategy::kDefault;
  std::string_view merge_key;        // empty for a list of scalars
  const TypeSchema* type = nullptr;  // of the object, or of the list's elements
};

// Only fields with a rule of their own, or that lead to one, are listed.
struct TypeSchema {
  std::span<const FieldSchema> fields;
};

// Null for a type that takes no strategic patches.
const TypeSchema* find_schema(ObjectType type) noexcept;

// The default for a field, or a type, that is not listed.
const FieldSchema& find_field(const TypeSchema* type, std::string_view name) noexcept;

}  // namespace divisi::json
