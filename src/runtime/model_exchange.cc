// model_exchanger and periodical_model_exchanger.
#include "base/log.h"
#include "divisi/error.h"
#include "divisi/exchange.h"
#include "runtime/exchange_gate.h"
#include "runtime/model_receiver.h"
#include "runtime/model_sender.h"

#include <fmt/format.h>

#include <random>
#include <utility>

namespace divisi {
namespace {

using runtime::ModelMessage;
using runtime::ModelReceiver;
using runtime::ModelSender;

constexpr const char* kEvent = "model_exchanger";

void need_state(const Model& model, std::string_view who) {
  if (!model.state) throw UsageError(fmt::format("{}: a node that sends needs Model::state", who));
}

void need_load(const Model& model, std::string_view who) {
  if (!model.load) throw UsageError(fmt::format("{}: a node that receives needs Model::load", who));
}

// Different with every start, on every host.
std::string sender_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

const Value* find(const Value& message, std::string_view key) {
  for (const auto& [name, value] : *message.get_if<Value::Map>()) {
    const auto* const text = name.get_if<std::string>();
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

ModelMessage parse_periodical(const Value& argument) {
  if (!argument.holds<Value::Map>()) {
    throw PayloadError(fmt::format("a model comes as a map with id, model and time, not as {}",
                                   argument.describe()));
  }
  ModelMessage message;
  message.id = argument.at("id").as<std::int64_t>();
  message.time = argument.at("time").as<double>();
  message.model = argument.at("model");
  if (const Value* const sender = find(argument, "sender")) {
    message.sender = sender->as<std::string>();
  }
  return message;
}

Middleware sender(Model model, PeriodicalOptions options, Task& owner) {
  need_state(model, "periodical_model_exchanger");
  auto to_peers = ModelSender::create(owner, options.event_name);
  return named(
      "periodical_model_exchanger",
      [model = std::move(model), options = std::move(options), to_peers = std::move(to_peers),
       name = sender_name(), iteration = std::int64_t{0}](Context&) mutable {
        const auto send = [&](std::int64_t counted) {
          const std::int64_t id = options.version ? options.version() : counted;
          const double now = runtime::wall_clock();
          to_peers->send(Value::Map{{"id", id},
                                    {"model", runtime::pack_model(model.state())},
                                    {"time", now},
                                    {"sender", name}});
          if (options.in_use) options.in_use->begin(id, now);
        };
        if (options.send_at_start && iteration == 0) send(0);
        suspend();
        const std::int64_t counted = iteration++;
        if (counted % options.period == 0) send(counted);
      });
}

Middleware receiver(Model model, const PeriodicalOptions& options, Task& owner) {
  need_load(model, "periodical_model_exchanger");
  auto from_peers = ModelReceiver::create(owner, std::move(model),
                                          {.event = options.event_name,
                                           .period = options.period,
                                           .delay_toleration = options.delay_toleration,
                                           .stale_toleration = options.stale_toleration,
                                           .timeout = options.timeout,
                                           .in_use = options.in_use,
                                           .parse = parse_periodical});
  return named("periodical_model_exchanger",
               [from_peers = std::move(from_peers)](Context& ctx) { from_peers->serve(ctx); });
}

}  // namespace

std::chrono::nanoseconds ModelVersion::age() const noexcept {
  const double sent = sent_.load();
  if (sent == 0) return std::chrono::nanoseconds(0);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(runtime::wall_clock() - sent));
}

void ModelVersion::begin(std::int64_t id, double sent) noexcept {
  id_.store(id);
  sent_.store(sent);
  iterations_.store(1);
  ++count_;
}

Middleware model_exchanger(Model model, ModelExchangerOptions options, Task& owner) {
  if (!runtime::has_exchange(owner, kEvent)) return VoidMiddleware{};
  if (owner.has_role(Role::kLearner)) {
    need_state(model, kEvent);
    auto to_peers = ModelSender::create(owner, kEvent);
    return named(kEvent,
                 [model = std::move(model), in_use = std::move(options.in_use),
                  to_peers = std::move(to_peers), sent = std::int64_t{0}](Context&) mutable {
                   suspend();
                   to_peers->send(runtime::pack_model(model.state()));
                   if (in_use) in_use->begin(sent++, runtime::wall_clock());
                 });
  }
  need_load(model, kEvent);
  // Every model that comes is news: their order is that of the learner.
  auto parse = [arrived = std::int64_t{0}](Value argument) mutable {
    return ModelMessage{arrived++, runtime::wall_clock(), {}, std::move(argument)};
  };
  auto from_peers = ModelReceiver::create(owner, std::move(model),
                                          {.event = kEvent,
                                           .timeout = options.timeout,
                                           .in_use = std::move(options.in_use),
                                           .parse = std::move(parse)});
  return named(kEvent,
               [from_peers = std::move(from_peers)](Context& ctx) { from_peers->serve(ctx); });
}

Middleware periodical_model_exchanger(Model model, PeriodicalOptions options, Task& owner) {
  if (options.period < 1 || options.stale_toleration < 1) {
    throw UsageError(
        fmt::format("periodical_model_exchanger: period and stale_toleration are 1 or more, not {} "
                    "and {}",
                    options.period, options.stale_toleration));
  }
  switch (options.mode) {
    case ModelExchangeMode::kSend: return sender(std::move(model), std::move(options), owner);
    case ModelExchangeMode::kReceive: return receiver(std::move(model), options, owner);
  }
  throw UsageError("periodical_model_exchanger: the mode is neither send nor receive");
}

}  // namespace divisi
