#include "dijob/node_watch.h"

#include "dijob/node.h"

#include <utility>

namespace divisi::dijob {
namespace {

// Of a node only whether it answers.
kube::InformerOptions all_nodes() {
  kube::InformerOptions made;
  made.reflector.resource = kube::resources::nodes();
  made.transform = [](json::Value& node) {
    const bool lost = is_out_of_service(node);
    const bool silent = is_unreachable(node);
    node.erase("spec");
    node.erase("status");
    node["lost"] = lost;
    node["silent"] = silent;
  };
  return made;
}

}  // namespace

NodeWatch::NodeWatch(kube::Client& client, io::Duration patience,
                     std::function<void(const std::string& node)> changed)
    : client_(client),
      patience_(patience),
      changed_(std::move(changed)),
      nodes_(client, all_nodes()) {
  nodes_.add_handler({.on_added = [this](const auto& now) { saw(*now); },
                      .on_changed = [this](const auto&, const auto& now) { saw(*now); },
                      .on_deleted =
                          [this](const auto& last, bool) {
                            silent_since_.erase(last->key());
                            changed_(last->key());
                          },
                      .on_synced = [this] { changed_(""); }});
}

void NodeWatch::start() {
  if (patience_.count() > 0) nodes_.start();
}

void NodeWatch::saw(const kube::Object& node) {
  const json::Value value = node.value();
  const bool silent = value.bool_at({"silent"}).value_or(false);
  const bool was = silent_since_.contains(node.key());
  if (silent) silent_since_.try_emplace(node.key(), client_.reactor().now());
  if (!silent) silent_since_.erase(node.key());
  if (silent != was || value.bool_at({"lost"}).value_or(false)) changed_(node.key());
}

std::optional<std::chrono::milliseconds> NodeWatch::lost_in(const std::string& node) const {
  if (patience_.count() == 0 || !nodes_.synced() || node.empty()) return std::nullopt;
  const kube::ObjectPtr found = nodes_.find(node);
  if (!found || found->value().bool_at({"lost"}).value_or(false)) {
    return std::chrono::milliseconds(0);
  }
  const auto silent = silent_since_.find(node);
  if (silent == silent_since_.end()) return std::nullopt;
  return std::chrono::ceil<std::chrono::milliseconds>(silent->second + patience_ -
                                                      client_.reactor().now());
}

}  // namespace divisi::dijob
