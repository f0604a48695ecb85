// JSON Patch, RFC 6902: the operations one after another on a copy, which takes the target's
// place when all have worked.
#include "json/patch.h"
#include "json/pointer.h"

#include <algorithm>

namespace divisi::json {
namespace {

// Kubernetes' own bounds: beyond them a patch is an attack. Without the second, thirty copies of
// a document into itself would fill any memory.
constexpr std::size_t kMaxOperations = 10000;
constexpr std::size_t kMaxCopiedBytes = std::size_t{3} << 20;

struct Extent {
  std::size_t bytes = 0;
  std::size_t depth = 0;  // 0 for a scalar
};

Extent measure(const Value& value) {
  Extent whole{sizeof(Value), 0};
  const auto include = [&](const Value& item) {
    const Extent part = measure(item);
    whole.bytes += part.bytes;
    whole.depth = std::max(whole.depth, part.depth + 1);
  };
  if (const std::string* text = value.as_string()) whole.bytes += text->size();
  if (const Array* array = value.as_array()) {
    whole.depth = 1;
    for (const Value& item : *array) include(item);
  }
  if (const Object* object = value.as_object()) {
    whole.depth = 1;
    for (const Member& member : *object) {
      whole.bytes += member.first.size();
      include(member.second);
    }
  }
  return whole;
}

Status not_there(const Pointer& where) {
  return make_status(Code::kInvalid, "there is nothing at \"{}\"", where.to_string());
}

class Patcher {
 public:
  explicit Patcher(Value& document) : document_(document) {}

  Status apply(const Value& operation) {
    const std::string_view op = operation.string_at({"op"});
    DIVISI_TRY_STATUS(read_pointer(operation, "path", path_));
    if (op == "remove") return remove(path_);
    if (op == "move" || op == "copy") {
      DIVISI_TRY_STATUS(read_pointer(operation, "from", from_));
      return op == "move" ? move() : copy();
    }
    if (op != "add" && op != "replace" && op != "test") {
      return make_status(Code::kInvalid, "\"{}\" is not add, remove, replace, move, copy or test",
                         op);
    }
    const Value* value = operation.find("value");
    if (value == nullptr) return {Code::kInvalid, "it has no value"};
    if (op == "add") return add(*value);
    return op == "replace" ? replace(*value) : test(*value);
  }

 private:
  static Status read_pointer(const Value& operation, std::string_view field, Pointer& out) {
    const Value* text = operation.find(field);
    if (text == nullptr || text->as_string() == nullptr) {
      return make_status(Code::kInvalid, "its {} is no text", field);
    }
    auto pointer = Pointer::parse(*text->as_string());
    if (!pointer) return std::move(pointer).error();
    out = *std::move(pointer);
    return {};
  }

  // Without it operations could build a document that is too deep to be read again.
  Status check_depth(const Value& value) const {
    const std::size_t max_depth = ParseLimits().max_depth;
    if (path_.tokens().size() + measure(value).depth <= max_depth) return {};
    return make_status(Code::kInvalid, "it would nest deeper than {} levels", max_depth);
  }

  Status add(Value value) {
    DIVISI_TRY_STATUS(check_depth(value));
    if (path_.empty()) {
      document_ = std::move(value);
      return {};
    }
    Value* parent = path_.parent().find(document_);
    const std::string& last = path_.tokens().back();
    if (parent != nullptr && parent->as_object() != nullptr) {
      (*parent)[last] = std::move(value);
      return {};
    }
    Array* array = parent == nullptr ? nullptr : parent->as_array();
    if (array == nullptr) return not_there(path_.parent());
    const auto index = last == "-" ? array->size() : array_index(last);
    if (!index || *index > array->size()) {
      return make_status(Code::kInvalid, "\"{}\" is no place in an array of {}", path_.to_string(),
                         array->size());
    }
    array->insert(array->begin() + static_cast<std::ptrdiff_t>(*index), std::move(value));
    return {};
  }

  Status remove(const Pointer& where) {
    if (where.empty()) return {Code::kInvalid, "the whole document cannot be removed"};
    if (where.find(document_) == nullptr) return not_there(where);
    Value* parent = where.parent().find(document_);
    const std::string& last = where.tokens().back();
    if (Array* array = parent->as_array()) {
      const std::size_t index = array_index(last).value_or(0);  // found above, so it has one
      array->erase(array->begin() + static_cast<std::ptrdiff_t>(index));
    } else {
      parent->erase(last);
    }
    return {};
  }

  Status replace(const Value& value) {
    Value* old = path_.find(document_);
    if (old == nullptr) return not_there(path_);
    DIVISI_TRY_STATUS(check_depth(value));
    *old = value;
    return {};
  }

  Status move() {
    Value* source = from_.find(document_);
    if (source == nullptr) return not_there(from_);
    if (from_ == path_) return {};
    if (from_.contains(path_)) {
      return make_status(Code::kInvalid, R"("{}" cannot move into its own child "{}")",
                         from_.to_string(), path_.to_string());
    }
    Value value = std::move(*source);
    DIVISI_TRY_STATUS(remove(from_));
    return add(std::move(value));
  }

  Status copy() {
    const Value* source = from_.find(document_);
    if (source == nullptr) return not_there(from_);
    copied_bytes_ += measure(*source).bytes;
    if (copied_bytes_ > kMaxCopiedBytes) {
      return make_status(Code::kInvalid, "copies of more than {} bytes", kMaxCopiedBytes);
    }
    return add(*source);
  }

  Status test(const Value& expected) {
    const Value* found = path_.find(document_);
    if (found == nullptr) return not_there(path_);
    if (equivalent(*found, expected)) return {};
    return make_status(Code::kConflict, "what is at \"{}\" is not the expected value",
                       path_.to_string());
  }

  Value& document_;
  Pointer path_;
  Pointer from_;
  std::size_t copied_bytes_ = 0;
};

}  // namespace

Status apply_json_patch(Value& target, const Value& patch) {
  const Array* operations = patch.as_array();
  if (operations == nullptr) {
    return make_status(Code::kInvalid, "a JSON patch is an array, not {}", patch.kind());
  }
  if (operations->size() > kMaxOperations) {
    return make_status(Code::kInvalid, "a JSON patch of {} operations; at most {} are allowed",
                       operations->size(), kMaxOperations);
  }
  Value patched = target;
  Patcher patcher(patched);
  std::size_t number = 0;
  for (const Value& operation : *operations) {
    ++number;
    if (const Status status = patcher.apply(operation); !status.ok()) {
      return status.with_context(
          fmt::format("operation {} of the JSON patch ({})", number, operation.string_at({"op"})));
    }
  }
  target = std::move(patched);
  return {};
}

}  // namespace divisi::json
