#include "divisi/context.h"

#include <fmt/format.h>

#include <algorithm>

namespace divisi {
namespace {

constexpr std::string_view kKeptKey = "_kept";

class Collector final : public detail::FieldVisitor {
 public:
  std::vector<detail::ContextField> fields;

 private:
  void visit(const detail::ContextField& field) override { fields.push_back(field); }
};

const detail::ContextField* find(const std::vector<detail::ContextField>& fields,
                                 std::string_view name) {
  const auto found =
      std::ranges::find_if(fields, [&](const auto& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace

void Attribute::check(const std::type_info& wanted) const {
  if (type_ != nullptr && *type_ == wanted) return;
  throw UsageError(fmt::format("asked for an attribute of type {}, but it holds {}",
                               detail::demangled(wanted),
                               type_ == nullptr ? "nothing" : detail::demangled(*type_)));
}

void Attribute::pack(Packer& packer) const {
  if (empty()) {
    packer.nil();
    return;
  }
  if (pack_ == nullptr) {
    throw UsageError(
        fmt::format("a value of type {} cannot travel: list its fields with "
                    "DIVISI_FIELDS, or specialise divisi::Coder for it",
                    detail::demangled(*type_)));
  }
  pack_(packer, value_.get());
}

Attribute Attribute::unpack(Unpacker& unpacker) {
  Value value = Value::unpack(unpacker);
  return value.is_nil() ? Attribute() : Attribute(std::move(value));
}

Context::~Context() = default;

std::shared_ptr<Context> Context::divisi_fresh() const {
  return std::make_shared<Context>();
}
void Context::divisi_visit(detail::FieldVisitor& visitor) {
  visitor("total_step", total_step);
}

std::vector<detail::ContextField> Context::fields() const {
  Collector collector;
  // Visiting hands out addresses and changes nothing; the callers that write are not const.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  const_cast<Context*>(this)->divisi_visit(collector);
  return std::move(collector.fields);
}

std::shared_ptr<Context> Context::renew() const {
  std::shared_ptr<Context> fresh = divisi_fresh();
  const Context& made = *fresh;
  if (typeid(made) != typeid(*this)) {
    const std::string name = detail::demangled(typeid(*this));
    throw UsageError(fmt::format(
        "the context class {} cannot be renewed: it needs DIVISI_CONTEXT({}, its fields...)", name,
        name));
  }
  if (!kept_.empty()) {
    const auto from = fields();
    const auto to = fresh->fields();
    for (const std::string& name : kept_) {
      if (const detail::ContextField* source = find(from, name); source != nullptr) {
        if (source->type->copy == nullptr) {
          throw UsageError(
              fmt::format("the context field {} is kept, but its type {} cannot be "
                          "copied; hold it by std::shared_ptr",
                          name, detail::demangled(*source->type->type)));
        }
        source->type->copy(find(to, name)->address, source->address);
      } else if (const auto attribute = attributes_.find(name); attribute != attributes_.end()) {
        fresh->attributes_.insert_or_assign(name, attribute->second);
      }
    }
  }
  fresh->total_step = total_step + 1;
  return fresh;
}

bool Context::has_attr(std::string_view name) const {
  return attributes_.contains(name) || find(fields(), name) != nullptr;
}

void Context::remove(std::string_view name) {
  if (const auto found = attributes_.find(name); found != attributes_.end()) {
    attributes_.erase(found);
  }
}

void Context::set_attribute(std::string_view name, Attribute value) {
  if (name == kKeptKey) throw UsageError("the context attribute name _kept is reserved");
  const auto all = fields();
  const detail::ContextField* field = find(all, name);
  if (field == nullptr) {
    attributes_.insert_or_assign(std::string(name), std::move(value));
    return;
  }
  if (*field->type->type == typeid(Attribute)) {
    *static_cast<Attribute*>(field->address) = std::move(value);
    return;
  }
  // By way of the codec, so that the rules are those of a listener's parameter: 5 fits an
  // int64 field, 2.5 does not.
  if (field->type->unpack == nullptr) {
    throw UsageError(fmt::format("the context field {} of type {} cannot be set by name", name,
                                 detail::demangled(*field->type->type)));
  }
  Packer packer;
  value.pack(packer);
  Unpacker unpacker(packer.body(), packer.buffers());
  try {
    field->type->unpack(unpacker, field->address);
  } catch (const PayloadError& error) {
    throw UsageError(fmt::format("setting the context field {}: {}", name, error.what()));
  }
}

Attribute& Context::attribute(std::string_view name) {
  if (const auto found = attributes_.find(name); found != attributes_.end()) return found->second;
  const auto all = fields();
  if (const auto* field = find(all, name);
      field != nullptr && *field->type->type == typeid(Attribute)) {
    return *static_cast<Attribute*>(field->address);
  }
  throw UsageError(fmt::format("the context of class {} has no attribute named {}",
                               detail::demangled(typeid(*this)), name));
}

void* Context::find_field(std::string_view name, const std::type_info& type) {
  const auto all = fields();
  const detail::ContextField* field = find(all, name);
  if (field == nullptr) return nullptr;
  if (*field->type->type == type) return field->address;
  if (*field->type->type == typeid(Attribute)) return nullptr;
  throw UsageError(fmt::format("the context field {} is of type {}, but was asked for as {}", name,
                               detail::demangled(*field->type->type), detail::demangled(type)));
}

void Context::pack(Packer& packer) const {
  const auto all = fields();
  packer.map(all.size() + attributes_.size() + 1);
  for (const detail::ContextField& field : all) {
    if (field.type->pack == nullptr) {
      throw UsageError(
          fmt::format("the context field {} of type {} cannot travel: list its fields "
                      "with DIVISI_FIELDS, or specialise divisi::Coder for it",
                      field.name, detail::demangled(*field.type->type)));
    }
    packer.text(field.name);
    field.type->pack(packer, field.address);
  }
  for (const auto& [name, attribute] : attributes_) {
    packer.text(name);
    attribute.pack(packer);
  }
  packer.text(kKeptKey);
  packer.array(kept_.size());
  for (const std::string& name : kept_) packer.text(name);
}

void Context::unpack(Unpacker& unpacker) {
  const auto all = fields();
  attributes_.clear();
  const std::size_t count = unpacker.map();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name(unpacker.text());
    try {
      if (name == kKeptKey) {
        const auto names = Coder<std::vector<std::string>>::unpack(unpacker);
        kept_ = {names.begin(), names.end()};
      } else if (const detail::ContextField* field = find(all, name);
                 field != nullptr && field->type->unpack != nullptr) {
        field->type->unpack(unpacker, field->address);
      } else {
        attributes_.insert_or_assign(name, Attribute::unpack(unpacker));
      }
    } catch (const PayloadError& error) {
      detail::rethrow_inside(detail::demangled(typeid(*this)) + "." + name, error);
    }
  }
  unpacker.leave();
}

namespace detail {

KeepNames::KeepNames(Context& ctx, std::string_view comma_separated) {
  constexpr std::string_view kBlank = " \t\n";
  while (!comma_separated.empty()) {
    const std::size_t comma = std::min(comma_separated.find(','), comma_separated.size());
    std::string_view name = comma_separated.substr(0, comma);
    name.remove_prefix(std::min(name.find_first_not_of(kBlank), name.size()));
    name = name.substr(0, name.find_last_not_of(kBlank) + 1);
    if (!name.empty()) ctx.keep(name);
    comma_separated.remove_prefix(std::min(comma + 1, comma_separated.size()));
  }
}

}  // namespace detail

OnlineRLContext::OnlineRLContext() {
  keep("env_step", "env_episode", "train_iter", "last_eval_iter", "last_eval_value", "wandb_url");
}

OfflineRLContext::OfflineRLContext() {
  keep("trained_env_step", "train_iter", "last_eval_iter", "last_eval_value", "wandb_url");
}

}  // namespace divisi
