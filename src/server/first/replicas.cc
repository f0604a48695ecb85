#include "server/first/replicas.h"

#include "server/envelope.h"

#include <fmt/format.h>

namespace divisi::server::first {
namespace {

json::Value list_of(const std::optional<Urls>& urls) {
  if (!urls) return {};
  return json::Array(urls->begin(), urls->end());
}

}  // namespace

json::Value to_json(const Replicas& replicas) {
  json::Value made;
  made["namespace"] = replicas.space;
  made["coordinator"] = replicas.coordinator;
  made["collectors"] = list_of(replicas.collectors);
  made["learners"] = list_of(replicas.learners);
  return made;
}

http::Response failed(const Status& status, const Replicas& done) {
  return server::failed(status, to_json(done));
}

http::Response not_implemented(std::string_view verb) {
  constexpr std::size_t kShown = 32;
  return server::failed(501, fmt::format("{} not implemented", verb.substr(0, kShown)));
}

}  // namespace divisi::server::first
