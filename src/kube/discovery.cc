#include "kube/discovery.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace divisi::kube {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool is_called(const Resource& resource, const std::string& name) {
  return resource.plural == name || lower(resource.kind) == name ||
         std::ranges::find(resource.short_names, name) != resource.short_names.end();
}

std::string path_of(std::string_view api_version) {
  return (api_version.find('/') == std::string_view::npos ? "/api/" : "/apis/") +
         std::string(api_version);
}

// "jobs.v1.batch" is the resource jobs of batch/v1, "jobs.batch" of whatever version.
struct Wanted {
  std::string name;
  std::string group;  // empty: any
  std::string version;
};

Wanted wanted(std::string_view text) {
  Wanted result;
  const std::size_t dot = text.find('.');
  result.name = lower(text.substr(0, dot));
  if (dot == std::string_view::npos) return result;
  std::string_view rest = text.substr(dot + 1);
  const std::string_view first = rest.substr(0, rest.find('.'));
  const bool version = first.size() >= 2 && first[0] == 'v' &&
                       std::isdigit(static_cast<unsigned char>(first[1])) != 0;
  if (version) {
    result.version = first;
    rest.remove_prefix(std::min(rest.size(), first.size() + 1));
  }
  result.group = rest;
  return result;
}

}  // namespace

std::vector<Resource> resources_of(const json::Value& list) {
  std::vector<Resource> found;
  const std::string_view api_version = list.string_at({"groupVersion"});
  const std::size_t slash = api_version.find('/');
  const json::Value* resources = list.find("resources");
  if (resources == nullptr || resources->as_array() == nullptr) return found;
  for (const json::Value& each : *resources->as_array()) {
    Resource resource;
    if (slash != std::string_view::npos) resource.group = api_version.substr(0, slash);
    resource.version = api_version.substr(slash == std::string_view::npos ? 0 : slash + 1);
    resource.plural = each.string_at({"name"});
    resource.kind = each.string_at({"kind"});
    resource.namespaced = each.bool_at({"namespaced"}).value_or(false);
    if (const json::Value* names = each.find("shortNames"); names != nullptr && names->as_array()) {
      for (const json::Value& name : *names->as_array()) {
        if (name.as_string() != nullptr) resource.short_names.push_back(*name.as_string());
      }
    }
    if (resource.plural.find('/') == std::string::npos) found.push_back(std::move(resource));
  }
  return found;
}

void Discovery::load(const std::string& api_version, Loaded loaded) {
  if (const auto known = known_.find(api_version); known != known_.end()) {
    // As the rest of this library: never from inside the call.
    return client_.reactor().post(
        [loaded = std::move(loaded), resources = known->second] { loaded(resources); });
  }
  client_.get_path(path_of(api_version), [this, api_version, alive = alive_,
                                          loaded = std::move(loaded)](Result<json::Value> list) {
    if (!*alive) return;
    if (!list) return loaded(failure(list.error()));
    auto resources = std::make_shared<const Resources>(resources_of(*list));
    known_[api_version] = resources;
    loaded(resources);
  });
}

void Discovery::find_kind(std::string_view api_version, std::string_view kind, Found found) {
  load(std::string(api_version), [version = std::string(api_version), kind = std::string(kind),
                                  found = std::move(found)](auto resources) {
    if (!resources && resources.error().code() != Code::kNotFound) {
      return found(failure(resources.error()));
    }
    if (resources) {
      for (const Resource& resource : **resources) {
        if (resource.kind == kind) return found(resource);
      }
    }
    found(failure(Code::kNotFound,
                  "the server has no kind {} of {}: is its CustomResourceDefinition installed?",
                  kind, version));
  });
}

// Goes through the groups in the server's order until one has the name.
struct Discovery::Search {
  Wanted wanted;
  std::string text;
  std::vector<std::string> versions;  // still to look at
  Found found;
};

void Discovery::find(std::string_view name, Found found) {
  auto search = std::make_shared<Search>();
  search->wanted = wanted(name);
  search->text = name;
  search->found = std::move(found);
  const Wanted& want = search->wanted;
  if (!want.version.empty()) {
    search->versions = {want.group.empty() ? want.version : want.group + "/" + want.version};
    return next_group(search);
  }
  client_.get_path("/apis", [this, search, alive = alive_](Result<json::Value> groups) {
    if (!*alive) return;
    if (!groups) return search->found(failure(groups.error()));
    if (search->wanted.group.empty()) search->versions.emplace_back("v1");
    const json::Value* list = groups->find("groups");
    if (list != nullptr && list->as_array() != nullptr) {
      for (const json::Value& group : *list->as_array()) {
        if (!search->wanted.group.empty() && group.string_at({"name"}) != search->wanted.group)
          continue;
        search->versions.emplace_back(group.string_at({"preferredVersion", "groupVersion"}));
      }
    }
    next_group(search);
  });
}

void Discovery::next_group(const std::shared_ptr<Search>& search) {
  if (search->versions.empty()) {
    return search->found(failure(Code::kNotFound,
                                 "the server has no resource \"{}\": see `kubectl api-resources`",
                                 search->text));
  }
  const std::string api_version = std::move(search->versions.front());
  search->versions.erase(search->versions.begin());
  load(api_version, [this, search](auto resources) {
    // A group whose own server is away hides nothing of the others.
    if (resources) {
      for (const Resource& resource : **resources) {
        if (is_called(resource, search->wanted.name)) return search->found(resource);
      }
    } else if (search->versions.empty() && resources.error().code() != Code::kNotFound) {
      return search->found(failure(resources.error()));
    }
    next_group(search);
  });
}

}  // namespace divisi::kube
