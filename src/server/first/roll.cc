#include "server/first/roll.h"

#include <memory>
#include <utility>

namespace divisi::server::first {
namespace {

constexpr int kTries = 5;  // how often others may come in between

json::Value to_json(const Size& size) {
  json::Value value = json::Object{{"replicas", size.replicas}};
  if (!size.cpus.is_zero()) value["cpus"] = size.cpus.to_string();
  if (!size.memory.is_zero()) value["memory"] = size.memory.to_string();
  if (size.gpus > 0) value["gpus"] = size.gpus;
  return value;
}

void grow(Size& size, const Size& wanted, int more) {
  const int before = size.replicas;
  size = wanted;
  size.replicas = before + more;
}

struct Writing {
  const Parts parts;
  const std::string space;
  const std::string name;
  const std::string uid;
  const RollChange change;
  const std::function<void(Status)> done;
  int tries = 0;
};

void write_roll(const std::shared_ptr<Writing>& one) {
  one->parts.source.read(kube::resources::pods(), one->space, one->name,
                         [one](const Result<json::Value>& pod) {
                           if (!pod && pod.error().code() != Code::kNotFound)
                             return one->done(pod.error());
                           // Gone, or another one by now, which asks for its workers itself.
                           if (!pod || pod->string_at({"metadata", "uid"}) != one->uid)
                             return one->done({});
                           const auto roll = one->change(read_roll(*pod));
                           if (!roll) return one->done({});
                           one->parts.writer.annotate(
                               *pod, kServed, print_roll(*roll), true, [one](const Status& status) {
                                 const bool again = status.code() == Code::kConflict;
                                 if (again && ++one->tries < kTries) return write_roll(one);
                                 one->done(status);
                               });
                         });
}

}  // namespace

Size* Roll::find(Role role) {
  switch (role) {
    case Role::kCollector: return &collectors;
    case Role::kLearner: return &learners;
    case Role::kAggregator: return &groups;
    default: return nullptr;
  }
}

void Roll::add(const Demand& demand, int more_collectors, int more_learners) {
  if (demand.collectors) grow(collectors, *demand.collectors, more_collectors);
  if (!demand.learners) return;
  grow(demand.learners->gpus > 1 ? groups : learners, *demand.learners, more_learners);
}

std::string print_roll(const Roll& roll) {
  return json::print(json::Object{{"collectors", to_json(roll.collectors)},
                                  {"learners", to_json(roll.learners)},
                                  {"groups", to_json(roll.groups)}});
}

std::optional<Roll> read_roll(const json::Value& coordinator) {
  const auto body = json::parse(coordinator.string_at({"metadata", "annotations", kServed}));
  if (!body || body->as_object() == nullptr) return std::nullopt;
  Roll roll;
  for (const auto& [role, size] :
       {std::pair("collectors", &roll.collectors), std::pair("learners", &roll.learners),
        std::pair("groups", &roll.groups)}) {
    const auto found = read_size(*body, role);
    if (!found || !*found) return std::nullopt;
    *size = **found;
  }
  return roll;
}

void change_roll(const Parts& parts, const json::Value& coordinator, RollChange change,
                 std::function<void(Status)> done) {
  write_roll(std::make_shared<Writing>(
      Writing{parts, std::string(coordinator.string_at({"metadata", "namespace"})),
              std::string(coordinator.string_at({"metadata", "name"})),
              std::string(coordinator.string_at({"metadata", "uid"})), std::move(change),
              std::move(done)}));
}

}  // namespace divisi::server::first
