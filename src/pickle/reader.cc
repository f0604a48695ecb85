#include "pickle/reader.h"

#include "pickle/nodes.h"
#include "pickle/text_forms.h"

#include <bit>
#include <optional>
#include <unordered_map>

namespace divisi::pickle {

namespace {

// The machine of a pickle: a stack, marks on it, and a memo of values by number.
class Machine {
 public:
  Machine(std::string_view bytes, const Limits& limits)
      : bytes_(bytes), limits_(limits), nodes_(limits) {}

  Result<Value> run() {
    while (!stopped_) {
      at_instruction_ = at_;
      if (Status status = step(); !status.ok()) return failure(located(status));
    }
    if (at_ != bytes_.size()) {
      return failure(located(make_status(Code::kInvalid, "there is something after its end")));
    }
    auto value = nodes_.tree(result_);
    if (!value) return failure(value.error().with_context("the pickle"));
    return value;
  }

 private:
  Status located(const Status& status) const {
    return status.with_context(fmt::format("the pickle, byte {}", at_instruction_ + 1));
  }

  Status step() {
    if (at_ == bytes_.size())
      return make_status(Code::kInvalid, "it ends without its last byte '.'");
    const auto instruction = static_cast<unsigned char>(bytes_[at_++]);
    if (instruction >= 0x80) return step_binary(instruction);
    switch (instruction) {
      case 'N': return push_constant(none_, Node{});
      case 'K':
      case 'M':
      case 'J':
      case 'I':
      case 'L':
      case 'F':
      case 'G': return step_number(instruction);
      case 'S':
      case 'T':
      case 'U':
      case 'V':
      case 'X':
      case 'B':
      case 'C': return step_text(instruction);
      case 'p':
      case 'q':
      case 'r':
      case 'g':
      case 'h':
      case 'j': return step_memo(instruction);
      case 'c': return step_global();
      case 'R': return step_reduce();
      case 'b': return step_build();
      case 'i':
      case 'o':
        return make_status(Code::kForbidden,
                           "it makes an object of an old-style class; only data is read");
      case 'P':
      case 'Q':
        return make_status(Code::kForbidden,
                           "it refers to something outside of it (a persistent id)");
      default: return step_container(instruction);
    }
  }

  Status step_container(unsigned char instruction) {
    switch (instruction) {
      case '(': return step_mark();
      case '.': return step_stop();
      case '0': return step_pop();
      case '1': return take_marked().has_value() ? Status() : no_mark();
      case '2': return step_duplicate();
      case ']': return push(make_container(Kind::kList));
      case '}': return push(make_container(Kind::kDict));
      case ')': return push(make_container(Kind::kTuple));
      case 'l': return push_marked(Kind::kList);
      case 't': return push_marked(Kind::kTuple);
      case 'd': return push_marked(Kind::kDict);
      case 'a': return append(1, Kind::kList);
      case 's': return append(2, Kind::kDict);
      case 'e': return append_marked(Kind::kList);
      case 'u': return append_marked(Kind::kDict);
      default:
        return make_status(Code::kInvalid, "{:#04x} is no instruction of a pickle", instruction);
    }
  }

  Status step_binary(unsigned char instruction) {
    switch (instruction) {
      case 0x80: return step_protocol();
      case 0x81: return step_new_object(1);
      case 0x82:
      case 0x83:
      case 0x84:
        return make_status(Code::kForbidden,
                           "it names a class by an extension code; only data is read");
      case 0x85: return push_tuple(1);
      case 0x86: return push_tuple(2);
      case 0x87: return push_tuple(3);
      case 0x88: return push_boolean(true_, true);
      case 0x89: return push_boolean(false_, false);
      case 0x8a: return step_long(1);
      case 0x8b: return step_long(4);
      case 0x8c: return step_sized_text(1, Kind::kStr);
      case 0x8d: return step_sized_text(8, Kind::kStr);
      case 0x8e: return step_sized_text(8, Kind::kBytes);
      case 0x8f: return push(make_container(Kind::kSet));
      case 0x90: return append_marked(Kind::kSet);
      case 0x91: return push_marked(Kind::kSet);
      case 0x92: return step_new_object(2);
      case 0x93: return step_stack_global();
      case 0x94: return remember(memo_.size());
      case 0x95: return step_frame();
      case 0x96: return step_sized_text(8, Kind::kBytes);
      case 0x97:
      case 0x98:
        return make_status(Code::kForbidden,
                           "its buffers are outside of it (protocol 5, out of band)");
      default:
        return make_status(Code::kInvalid, "{:#04x} is no instruction of a pickle", instruction);
    }
  }

  // Input.

  Result<std::string_view> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) return failure(Code::kInvalid, "it is cut off");
    const std::string_view part = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return part;
  }

  Result<std::uint64_t> little_endian(int bytes) {
    DIVISI_TRY(const std::string_view part, take(static_cast<std::uint64_t>(bytes)));
    std::uint64_t value = 0;
    for (std::size_t i = part.size(); i-- > 0;) {
      value = (value << 8U) | static_cast<unsigned char>(part[i]);
    }
    return value;
  }

  Result<std::string_view> line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return failure(Code::kInvalid, "it is cut off");
    const std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  // The stack.

  static Status no_mark() {
    return make_status(Code::kInvalid, "it ends a list that it did not begin");
  }
  static Status too_few() {
    return make_status(Code::kInvalid, "it takes a value that is not there");
  }

  Status push(Node node) {
    auto id = nodes_.add(std::move(node));
    if (!id) return id.error();
    stack_.push_back(*id);
    return {};
  }

  Status push(Result<Node> node) { return node ? push(*std::move(node)) : node.error(); }

  // None, True and False are one node each: a pickle of many of them stays small.
  Status push_constant(std::optional<NodeId>& known, Node node) {
    if (!known) {
      auto id = nodes_.add(std::move(node));
      if (!id) return id.error();
      known = *id;
    }
    stack_.push_back(*known);
    return {};
  }

  Status push_boolean(std::optional<NodeId>& known, bool value) {
    Node node;
    node.kind = Kind::kBool;
    node.boolean = value;
    return push_constant(known, std::move(node));
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  Result<NodeId> pop() {
    if (stack_.size() <= floor()) return failure(too_few());
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }

  // The values above the last mark, which goes.
  std::optional<std::vector<NodeId>> take_marked() {
    if (marks_.empty()) return std::nullopt;
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<NodeId> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }

  Status push_marked(Kind kind) {
    auto items = take_marked();
    if (!items) return no_mark();
    if (kind == Kind::kDict && items->size() % 2 != 0) return odd();
    return push(make_container(kind, *std::move(items)));
  }

  Status push_tuple(std::size_t size) {
    if (stack_.size() < floor() + size) return too_few();
    std::vector<NodeId> items(stack_.end() - static_cast<std::ptrdiff_t>(size), stack_.end());
    stack_.resize(stack_.size() - size);
    return push(make_container(Kind::kTuple, std::move(items)));
  }

  static Status odd() { return make_status(Code::kInvalid, "a key of a dict has no value"); }

  Status append_to_top(Kind kind, const std::vector<NodeId>& items) {
    if (stack_.size() <= floor()) return too_few();
    Node& container = nodes_[stack_.back()];
    if (container.form != Node::Form::kValue || container.kind != kind) {
      return make_status(Code::kInvalid, "it adds an item to something that is no {}",
                         kind_name(kind));
    }
    if (kind == Kind::kDict && items.size() % 2 != 0) return odd();
    container.items.insert(container.items.end(), items.begin(), items.end());
    return {};
  }

  Status append(std::size_t count, Kind kind) {
    if (stack_.size() < floor() + count) return too_few();
    const std::vector<NodeId> items(stack_.end() - static_cast<std::ptrdiff_t>(count),
                                    stack_.end());
    stack_.resize(stack_.size() - count);
    return append_to_top(kind, items);
  }

  Status append_marked(Kind kind) {
    const auto items = take_marked();
    return items ? append_to_top(kind, *items) : no_mark();
  }

  Status step_mark() {
    if (marks_.size() >= limits_.max_values) {
      return make_status(Code::kInvalid, "it begins more than {} lists", limits_.max_values);
    }
    marks_.push_back(stack_.size());
    return {};
  }

  Status step_stop() {
    auto id = pop();
    if (!id) return id.error();
    result_ = *id;
    stopped_ = true;
    return {};
  }

  Status step_pop() {
    if (stack_.size() > floor()) {
      stack_.pop_back();
      return {};
    }
    if (marks_.empty()) return too_few();
    marks_.pop_back();
    return {};
  }

  Status step_duplicate() {
    if (stack_.size() <= floor()) return too_few();
    stack_.push_back(stack_.back());
    return {};
  }

  // Numbers and texts.

  Status step_number(unsigned char instruction) {
    if (instruction == 'G') return step_binary_float();
    if (instruction == 'I' || instruction == 'L' || instruction == 'F') {
      auto text = line();
      if (!text) return text.error();
      return push(instruction == 'F' ? read_float(*text) : read_decimal(*text, instruction == 'I'));
    }
    const int bytes = instruction == 'K' ? 1 : instruction == 'M' ? 2 : 4;
    auto bits = little_endian(bytes);
    if (!bits) return bits.error();
    Node node;
    node.kind = Kind::kInt;
    node.integer = instruction == 'J'
                       ? std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(*bits))}
                       : static_cast<std::int64_t>(*bits);
    return push(std::move(node));
  }

  Status step_binary_float() {
    auto bytes = take(8);
    if (!bytes) return bytes.error();
    std::uint64_t bits = 0;
    for (const char byte : *bytes) bits = (bits << 8U) | static_cast<unsigned char>(byte);
    Node node;
    node.kind = Kind::kFloat;
    node.number = std::bit_cast<double>(bits);
    return push(std::move(node));
  }

  Status step_long(int size_bytes) {
    auto size = little_endian(size_bytes);
    if (!size) return size.error();
    auto bytes = take(*size);
    if (!bytes) return bytes.error();
    return push(read_long(*bytes));
  }

  Status step_text(unsigned char instruction) {
    switch (instruction) {
      case 'T': return step_sized_text(4, Kind::kStr);
      case 'U': return step_sized_text(1, Kind::kStr);
      case 'X': return step_sized_text(4, Kind::kStr);
      case 'B': return step_sized_text(4, Kind::kBytes);
      case 'C': return step_sized_text(1, Kind::kBytes);
      default: break;
    }
    auto text = line();
    if (!text) return text.error();
    auto decoded = instruction == 'S' ? read_quoted(*text) : read_raw_unicode(*text);
    if (!decoded) return decoded.error();
    return push_text(*std::move(decoded));
  }

  Status push_text(std::string text) {
    if (!is_utf8(text)) return make_status(Code::kInvalid, "a text is not valid UTF-8");
    return push(make_text(Kind::kStr, std::move(text)));
  }

  Status step_sized_text(int size_bytes, Kind kind) {
    auto size = little_endian(size_bytes);
    if (!size) return size.error();
    auto text = take(*size);
    if (!text) return text.error();
    if (kind == Kind::kStr) return push_text(std::string(*text));
    return push(make_text(kind, std::string(*text)));
  }

  // The memo.

  Status remember(std::uint64_t number) {
    if (stack_.size() <= floor()) return too_few();
    if (memo_.size() >= limits_.max_values) {
      return make_status(Code::kInvalid, "it remembers more than {} values", limits_.max_values);
    }
    memo_[number] = stack_.back();
    return {};
  }

  Result<std::uint64_t> memo_number(unsigned char instruction) {
    if (instruction == 'q' || instruction == 'h') return little_endian(1);
    if (instruction == 'r' || instruction == 'j') return little_endian(4);
    DIVISI_TRY(const std::string_view text, line());
    DIVISI_TRY(const Node node, read_decimal(text, false));
    if (node.kind != Kind::kInt || node.integer < 0) {
      return failure(Code::kInvalid, "a place of the memo is no number");
    }
    return static_cast<std::uint64_t>(node.integer);
  }

  Status step_memo(unsigned char instruction) {
    auto number = memo_number(instruction);
    if (!number) return number.error();
    if (instruction == 'p' || instruction == 'q' || instruction == 'r') return remember(*number);
    const auto known = memo_.find(*number);
    if (known == memo_.end()) {
      return make_status(Code::kInvalid, "it recalls value {}, which it did not remember", *number);
    }
    stack_.push_back(known->second);
    return {};
  }

  // Names, and what is done with them.

  Status push_global(std::string_view module, std::string_view name) {
    if (module == "__builtin__") module = "builtins";
    if (module == "copy_reg") module = "copyreg";
    std::string full = fmt::format("{}.{}", module, name);
    if (full.size() > 200) full.resize(200);
    if (!is_utf8(full)) return make_status(Code::kInvalid, "a name is not valid UTF-8");
    for (char& c : full) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';  // it goes into messages
    }
    Node node;
    node.form = Node::Form::kGlobal;
    node.text = std::move(full);
    return push(std::move(node));
  }

  Status step_global() {
    auto module = line();
    if (!module) return module.error();
    auto name = line();
    if (!name) return name.error();
    return push_global(*module, *name);
  }

  Status step_stack_global() {
    auto name = pop();
    if (!name) return name.error();
    auto module = pop();
    if (!module) return module.error();
    const auto is_text = [this](NodeId id) {
      return nodes_[id].form == Node::Form::kValue && nodes_[id].kind == Kind::kStr;
    };
    if (!is_text(*name) || !is_text(*module)) {
      return make_status(Code::kInvalid, "the name of a class or function is no text");
    }
    const std::string module_text = nodes_[*module].text.substr(0, 200);
    const std::string name_text = nodes_[*name].text.substr(0, 200);
    return push_global(module_text, name_text);
  }

  Status apply_to(NodeId function, NodeId arguments) {
    const Node& tuple = nodes_[arguments];
    if (tuple.form != Node::Form::kValue || tuple.kind != Kind::kTuple) {
      return make_status(Code::kInvalid, "the arguments of a class or function are no tuple");
    }
    auto made = apply(nodes_, function, std::vector<NodeId>(tuple.items));
    if (!made) return made.error();
    stack_.push_back(*made);
    return {};
  }

  Status step_reduce() {
    auto arguments = pop();
    if (!arguments) return arguments.error();
    auto function = pop();
    if (!function) return function.error();
    return apply_to(*function, *arguments);
  }

  // cls.__new__(cls, *arguments), with keyword arguments where `operands` is 2.
  Status step_new_object(int operands) {
    if (operands == 2) {
      auto keywords = pop();
      if (!keywords) return keywords.error();
      if (nodes_[*keywords].kind != Kind::kDict || !nodes_[*keywords].items.empty()) {
        return make_status(Code::kForbidden,
                           "it makes an object with keyword arguments; only data is read");
      }
    }
    return step_reduce();
  }

  Status step_build() {
    auto state = pop();
    if (!state) return state.error();
    if (stack_.size() <= floor()) return too_few();
    return build(nodes_, stack_.back(), *state);
  }

  // What stands in front.

  Status step_protocol() {
    auto protocol = little_endian(1);
    if (!protocol) return protocol.error();
    if (*protocol <= 5) return {};
    return make_status(Code::kInvalid, "it is of protocol {}; 0 to 5 are known", *protocol);
  }

  Status step_frame() {
    auto size = little_endian(8);
    if (!size) return size.error();
    if (*size <= bytes_.size() - at_) return {};
    return make_status(Code::kInvalid, "it is cut off");
  }

  const std::string_view bytes_;
  const Limits limits_;
  Nodes nodes_;
  std::size_t at_ = 0;
  std::size_t at_instruction_ = 0;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, NodeId> memo_;
  std::optional<NodeId> none_;
  std::optional<NodeId> true_;
  std::optional<NodeId> false_;
  NodeId result_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Value> load(std::string_view bytes, const Limits& limits) {
  if (bytes.size() > limits.max_bytes) {
    return failure(Code::kInvalid, "the pickle has {} bytes, more than {}", bytes.size(),
                   limits.max_bytes);
  }
  return Machine(bytes, limits).run();
}

}  // namespace divisi::pickle
