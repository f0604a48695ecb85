#include "runtime/model_sender.h"

#include "base/log.h"
#include "divisi/detail/front_end.h"
#include "divisi/error.h"
#include "divisi/parallel.h"

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

std::string answer_of(const std::string& event) {
  return event + "_latest";
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
  sender->listen();
  return sender;
}

ModelSender::~ModelSender() {
  for (const auto& [event, id] : peer_listeners_) {
    detail::FrontEnd::forget(Parallel::instance(), event, id);
  }
}

// A peer that joins has no model. One that was begun anew inside its process has none either, but
// the router sees no difference: it asks.
void ModelSender::listen() {
  const auto again = [weak = weak_from_this()](const std::string& event) {
    return [weak, event](int node) {
      if (const auto self = weak.lock()) self->send_again(event, node);
    };
  };
  task_.on(request_of(event_), again(answer_of(event_)));
  Parallel& router = Parallel::instance();
  if (!router.is_active()) return;
  for (const char* const change : {"peer_joined", "peer_back"}) {
    peer_listeners_[change] =
        detail::FrontEnd::listen(router, change, detail::make_listener(again(event_)), false);
  }
}

// Both emit under the mutex, so that an older model never follows a newer one. An emit of the
// newest alone does not wait for a slow peer.
void ModelSender::send(Value message) {
  const std::lock_guard lock(mutex_);
  last_ = std::move(message);
  task_.emit(event_, newest_to(Target::all()), last_);
}

void ModelSender::send_again(const std::string& event, int node) {
  const std::lock_guard lock(mutex_);
  if (last_.is_nil() || !task_.running()) return;
  try {
    task_.emit(event, newest_to(Target::to_node(node)), last_);
  } catch (const Error& error) {
    // It has gone again, or the task has just stopped.
    log::debug("could not send the model of {} to node {}: {}", event_, node, error.what());
  }
}

}  // namespace divisi::runtime
