#include "kube/memory/api.h"

#include "kube/resource.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {

struct MemoryApi::Watch {
  ApiPath path;
  std::shared_ptr<http::ResponseHandler> handler;
  std::uint64_t sent = 0;  // the newest version that was sent, or passed over
  bool open = true;
  std::unique_ptr<io::Timer> end_timer;
};

// Destroyed by the caller: the handler is not called any more.
class MemoryApi::CallHandle final : public http::Call {
 public:
  explicit CallHandle(std::shared_ptr<CallHandle*> self) : self_(std::move(self)) { *self_ = this; }
  ~CallHandle() override {
    *self_ = nullptr;
    if (watch != nullptr) watch->open = false;
  }
  void pause() override {}
  void resume() override {}
  void write(std::string) override {}
  void finish_body() override {}
  std::size_t unsent() const override { return 0; }

  std::shared_ptr<Watch> watch;

 private:
  const std::shared_ptr<CallHandle*> self_;
};

namespace {

// Watches that are further behind begin again with a list.
constexpr std::size_t kKeptChanges = 1000;

std::string watch_frame(std::string_view type, const json::Value& object) {
  json::Value event;
  event["type"] = type;
  event["object"] = object;
  return json::print(event) + "\n";
}

}  // namespace

MemoryApi::MemoryApi(io::Reactor& reactor)
    : verbs(store, [] { return std::chrono::system_clock::now(); }), reactor_(reactor) {}
MemoryApi::~MemoryApi() = default;

void MemoryApi::later(std::function<void()> work) {
  reactor_.post([weak = std::weak_ptr(alive_), work = std::move(work)] {
    if (weak.lock() != nullptr) work();
  });
}

std::unique_ptr<http::Call> MemoryApi::send(Lane, http::Request request, http::CallOptions,
                                            std::shared_ptr<http::ResponseHandler> handler) {
  auto self = std::make_shared<CallHandle*>(nullptr);
  auto call = std::make_unique<CallHandle>(self);
  later([this, request = std::move(request), handler = std::move(handler), self] {
    handle(request, handler, self);
  });
  return call;
}

http::Response MemoryApi::answer(const http::Request& request) {
  const auto path = ApiPath::parse(request.target);
  if (!path) {
    return status_answer(404, "NotFound", "the server could not find " + request.target);
  }
  http::Response response = verbs.answer(request, *path);
  if (request.method == "POST" || request.method == "DELETE") verbs.collect_garbage();
  changed();
  return response;
}

void MemoryApi::handle(const http::Request& request,
                       const std::shared_ptr<http::ResponseHandler>& handler,
                       const std::shared_ptr<CallHandle*>& call) {
  const auto path = ApiPath::parse(request.target);
  if (path && request.method == "GET" && path->get("watch") == "true") {
    if (*call != nullptr) start_watch(*path, handler, call);
    return;
  }
  const http::Response response = answer(request);
  if (*call == nullptr) return;
  handler->on_head({response.status, "", response.headers});
  if (*call != nullptr && !response.body.empty()) handler->on_body(response.body);
  if (*call != nullptr) handler->on_done({});
}

void MemoryApi::start_watch(const ApiPath& path, std::shared_ptr<http::ResponseHandler> handler,
                            const std::shared_ptr<CallHandle*>& call) {
  auto watch = std::make_shared<Watch>();
  watch->path = path;
  watch->handler = std::move(handler);
  (*call)->watch = watch;
  watch->handler->on_head({200, "OK", {{"Content-Type", "application/json"}}});
  const bool initial = path.get("sendInitialEvents") == "true";
  watch->sent = initial ? store.version() : path.number("resourceVersion");
  if (watch->open && watch->sent < store.compacted()) {
    const http::Response gone = status_answer(410, "Expired", "too old resource version");
    watch->handler->on_body(watch_frame("ERROR", *json::parse(gone.body)));
    if (watch->open) watch->handler->on_done({});
    return;
  }
  if (initial) {
    for (const auto& [key, object] : store.all(path.collection)) {
      if (!path.space.empty() && split_key(key).space != path.space) continue;
      if (!watch->open || !selected(path.get("labelSelector"), object)) continue;
      watch->handler->on_body(watch_frame("ADDED", object));
    }
    json::Value mark;
    mark["metadata"]["resourceVersion"] = std::to_string(store.version());
    mark["metadata"]["annotations"]["k8s.io/initial-events-end"] = "true";
    if (watch->open) watch->handler->on_body(watch_frame("BOOKMARK", mark));
  }
  if (!watch->open) return;
  const auto seconds = std::chrono::seconds(path.number("timeoutSeconds"));
  if (seconds.count() > 0) {
    watch->end_timer = reactor_.after(seconds, [weak = std::weak_ptr(watch)] {
      const auto found = weak.lock();
      if (found != nullptr && std::exchange(found->open, false)) found->handler->on_done({});
    });
  }
  watches_.push_back(watch);
  changed();
}

void MemoryApi::changed() {
  if (std::exchange(pumping_, true)) return;
  later([this] {
    pumping_ = false;
    pump_all();
  });
}

void MemoryApi::pump_all() {
  std::erase_if(watches_, [](const auto& watch) { return !watch->open; });
  const auto watches = watches_;  // a handler may begin or end one
  for (const auto& watch : watches) pump(*watch);
  store.trim_history(kKeptChanges);
}

void MemoryApi::pump(Watch& watch) {
  // A handler may write, which adds to the history: entries are copied, and found by version.
  while (watch.open) {
    const auto& history = store.history();
    const auto next =
        std::ranges::upper_bound(history, watch.sent, {}, &MemoryStore::Change::version);
    if (next == history.end()) return;
    watch.sent = next->version;
    if (next->collection != watch.path.collection) continue;
    const std::string_view space = next->object.string_at({"metadata", "namespace"});
    if (!watch.path.space.empty() && space != watch.path.space) continue;
    if (!selected(watch.path.get("labelSelector"), next->object)) continue;
    watch.handler->on_body(watch_frame(next->type, next->object));
  }
}

}  // namespace divisi::kube
