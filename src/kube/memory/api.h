// MemoryApi: an API server inside the process; the Transport of controllers that run without a
// cluster.
//
//   MemoryApi api(reactor);  Client client(reactor, api);
//   api.store.on_change = ...;  api.put("/api/v1/pods", pod);
//
// It has the verbs, paging, conflicts, watches with initial events, 410s and the garbage collector
// of the real one for any resource; no schemas, no admission, no users. Loop only.
#pragma once

#include "kube/memory/store.h"
#include "kube/memory/verbs.h"
#include "kube/transport.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::kube {

class MemoryApi final : public Transport {
 public:
  explicit MemoryApi(io::Reactor& reactor);
  ~MemoryApi() override;

  std::unique_ptr<http::Call> send(Lane lane, http::Request request, http::CallOptions options,
                                   std::shared_ptr<http::ResponseHandler> handler) override;

  // Answers a request that is no watch, at once.
  http::Response answer(const http::Request& request);

  // Changes made through this member reach the watches; so must every change of the store that no
  // request made.
  void changed();

  MemoryStore store{};
  MemoryVerbs verbs;

 private:
  struct Watch;
  class CallHandle;

  void handle(const http::Request& request, const std::shared_ptr<http::ResponseHandler>& handler,
              const std::shared_ptr<CallHandle*>& call);
  void start_watch(const ApiPath& path, std::shared_ptr<http::ResponseHandler> handler,
                   const std::shared_ptr<CallHandle*>& call);
  void pump_all();
  void pump(Watch& watch);
  void later(std::function<void()> work);

  io::Reactor& reactor_;
  std::vector<std::shared_ptr<Watch>> watches_;
  bool pumping_ = false;
  // Work that was posted looks here first: it does nothing once the server is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::kube
