#include "runtime/model_sender.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <utility>

namespace divisi::runtime {
namespace {

// A receiver that is slow gets the newest one, not all of them.
EmitOptions newest_to(Target target) {
  return {.only_remote = true, .to = std::move(target), .policy = Policy::kLatestOnly};
}

}  // namespace

std::string request_of(const std::string& event) {
  return event + "_request";
}

Value pack_model(const std::map<std::string, Tensor>& model) {
  Value::Map map;
  map.reserve(model.size());
  for (const auto& [name, tensor] : model) map.emplace_back(name, tensor);
  return map;
}

std::map<std::string, Tensor> unpack_model(const Value& message) {
  const auto* const map = message.get_if<Value::Map>();
  if (map == nullptr) {
    throw PayloadError(
        fmt::format("a model is a map from name to tensor, not {}", message.describe()));
  }
  std::map<std::string, Tensor> model;
  for (const auto& [key, value] : *map) {
    const auto* const name = key.get_if<std::string>();
    const auto* const tensor = value.get_if<Tensor>();
    if (name == nullptr || tensor == nullptr) {
      throw PayloadError(fmt::format("a model is a map from name to tensor, but {} is {}",
                                     name == nullptr ? key.describe() : *name, value.describe()));
    }
    model.emplace(*name, *tensor);
  }
  return model;
}

std::shared_ptr<ModelSender> ModelSender::create(Task& owner, std::string event) {
  std::shared_ptr<ModelSender> sender(new ModelSender(owner, std::move(event)));
  owner.on(request_of(sender->event_), [weak = std::weak_ptr(sender)](int node) {
    if (const auto self = weak.lock()) self->answer(node);
  });
  return sender;
}

void ModelSender::send(Value message) {
  {
    const std::lock_guard lock(mutex_);
    last_ = message;
  }
  task_.emit(event_, newest_to(Target::all()), message);
}

void ModelSender::answer(int node) {
  Value last;
  {
    const std::lock_guard lock(mutex_);
    last = last_;
  }
  if (last.is_nil()) return;
  task_.emit(event_, newest_to(Target::to_node(node)), last);
}

}  // namespace divisi::runtime
