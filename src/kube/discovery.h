// Discovery: which resources a server has, by what people and files call them.
//
//   discovery.find("po", [](Result<Resource> pods) {...});          // as on a command line
//   discovery.find_kind("batch/v1", "Job", [](Result<Resource> jobs) {...});   // as in a file
//
// Loop only. What was asked once is remembered until forget().
#pragma once

#include "kube/client.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::kube {

class Discovery {
 public:
  using Found = std::function<void(Result<Resource>)>;

  explicit Discovery(Client& client) : client_(client), alive_(std::make_shared<bool>(true)) {}
  ~Discovery() { *alive_ = false; }

  // By plural, singular, kind or short name, in any case; with ".group" or ".version.group" behind
  // it when several groups have it. The core group comes first, then the server's order.
  void find(std::string_view name, Found found);
  void find_kind(std::string_view api_version, std::string_view kind, Found found);
  void forget() { known_.clear(); }

 private:
  struct Search;
  using Resources = std::vector<Resource>;
  using Loaded = std::function<void(Result<std::shared_ptr<const Resources>>)>;

  void load(const std::string& api_version, Loaded loaded);
  void next_group(const std::shared_ptr<Search>& search);

  Client& client_;
  std::map<std::string, std::shared_ptr<const Resources>> known_;  // by apiVersion
  std::shared_ptr<bool> alive_;
};

// The resources of an APIResourceList, without its subresources.
std::vector<Resource> resources_of(const json::Value& list);

}  // namespace divisi::kube
