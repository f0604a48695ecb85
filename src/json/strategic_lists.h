// The lists of a strategic merge patch: merging elements by a key, sets of scalars, and the order
// that comes out. Inside src/json only.
#pragma once

#include "json/strategic_schema.h"
#include "json/value.h"

#include <optional>
#include <string_view>

namespace divisi::json {

constexpr std::string_view kPatch = "$patch";
constexpr std::string_view kRetainKeys = "$retainKeys";
constexpr std::string_view kSetElementOrder = "$setElementOrder/";
constexpr std::string_view kDeleteFromPrimitiveList = "$deleteFromPrimitiveList/";

bool is_directive(std::string_view key) noexcept;

// What a patch says where nothing was before: its directives and nulls are gone. Nothing when it
// only says that something is deleted.
std::optional<Value> without_directives(const Value& patch);

using MergeObject = Status (*)(Value& target, const Value& patch, const TypeSchema* type);

// Elements that are objects, by the field's merge key.
Status merge_elements(Array& target, const Array& changes, const FieldSchema& field,
                      MergeObject merge_object);

// Elements that are scalars, as a set.
Status add_scalars(Array& target, const Array& added);
Status remove_scalars(Array& target, const Array& removed);

// Those in `order` stand as they stand there; the others keep their order, and their place before
// those that followed them in `before`. An empty key is for scalars.
Status order_elements(Array& merged, const Array& order, const Array& before,
                      std::string_view merge_key);

// Whether the changes of a list come in the order that $setElementOrder gives, and are all in it.
Status check_order(const Array& changes, const Array& order, std::string_view merge_key);

}  // namespace divisi::json
