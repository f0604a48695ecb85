#include "kube/testing/fake_api.h"

#include "kube/resource.h"

#include <optional>
#include <utility>

namespace divisi::kube::testing {

struct FakeApi::Watch {
  ApiPath path;
  std::shared_ptr<http::ResponseHandler> handler;
  std::size_t next = 0;    // into the history
  std::uint64_t told = 0;  // the newest version that was sent
  bool open = true;
  bool silent = false;
  bool pumping = false;
  std::unique_ptr<io::Timer> end_timer;
  std::unique_ptr<io::Timer> idle_timer;
  io::Duration idle{0};
};

// Destroyed by the caller: nothing more is told.
class FakeApi::CallHandle final : public http::Call {
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

// What takes seconds in place of milliseconds: the garbage collector, a watch that lags.
constexpr int kLate = 1000;

std::string frame(std::string_view type, const json::Value& object) {
  json::Value event;
  event["type"] = type;
  event["object"] = object;
  return json::print(event) + "\n";
}

json::Value bookmark_of(std::uint64_t version) {
  json::Value object;
  object["metadata"]["resourceVersion"] = std::to_string(version);
  return object;
}

}  // namespace

FakeApi::FakeApi(SimLoop& loop, std::uint64_t seed)
    : verbs(store, [&loop] { return loop.wall(); }), loop_(loop), random_(seed) {}
FakeApi::~FakeApi() = default;

bool FakeApi::chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

io::Duration FakeApi::delay() {
  return std::chrono::microseconds(std::uniform_int_distribution<>(50, 3000)(random_));
}

// The real collector follows a graph of its own, some time behind; so does this one.
void FakeApi::look_for_orphans() {
  if (orphans_timer_ != nullptr || !verbs.has_orphans()) return;
  orphans_timer_ = loop_.after(delay() * kLate, [this] {
    orphans_timer_.reset();
    verbs.collect_garbage();
    changed();
  });
}

std::unique_ptr<http::Call> FakeApi::send(Lane, http::Request request, http::CallOptions options,
                                          std::shared_ptr<http::ResponseHandler> handler) {
  auto self = std::make_shared<CallHandle*>(nullptr);
  auto call = std::make_unique<CallHandle>(self);
  const auto shared_request = std::make_shared<http::Request>(std::move(request));
  auto timer = std::make_shared<std::unique_ptr<io::Timer>>();
  *timer = loop_.after(delay(), [this, shared_request, options, handler, self, timer] {
    handle(*shared_request, options, handler, self);
  });
  return call;
}

void FakeApi::handle(const http::Request& request, const http::CallOptions& options,
                     const std::shared_ptr<http::ResponseHandler>& handler,
                     const std::shared_ptr<CallHandle*>& call) {
  ++requests_;
  const auto reply = [&](http::Response response) {
    auto timer = std::make_shared<std::unique_ptr<io::Timer>>();
    const io::Duration late = answers_late ? answers_late(request) : io::Duration(0);
    *timer = loop_.after(delay() + late, [handler, call, timer, response = std::move(response)] {
      if (*call == nullptr) return;
      handler->on_head({response.status, "", response.headers});
      if (*call != nullptr && !response.body.empty()) handler->on_body(response.body);
      if (*call != nullptr) handler->on_done({});
    });
  };
  const auto lose = [&] {
    auto timer = std::make_shared<std::unique_ptr<io::Timer>>();
    *timer = loop_.after(delay(), [handler, call, timer] {
      if (*call != nullptr)
        handler->on_done(make_status(Code::kUnavailable, "the connection was reset"));
    });
  };
  if (chance(faults.lose_request)) return lose();
  if (chance(faults.refuse)) {
    if (chance(0.4)) {
      http::Response busy = status_answer(429, "TooManyRequests", "too many requests");
      busy.headers.add("Retry-After", "1");
      return reply(std::move(busy));
    }
    return reply(chance(0.5) ? status_answer(500, "InternalError", "a fault")
                             : http::Response{503, {{"Content-Type", "text/html"}}, "<html>"});
  }
  const bool overwrites = request.method == "PATCH" || request.method == "PUT";
  if (overwrites && chance(faults.conflict)) {
    return reply(status_answer(409, "Conflict", "the object has been modified"));
  }
  if (intercept) {
    if (auto instead = intercept(request)) return reply(*std::move(instead));
  }
  const auto path = ApiPath::parse(request.target);
  if (!path)
    return reply(status_answer(404, "NotFound", "the server could not find " + request.target));
  // A caller that has gone changes nothing: the request is on its way.
  if (request.method == "GET" && path->get("watch") == "true") {
    if (*call != nullptr) start_watch(*path, options, handler, call);
    return;
  }
  http::Response response = verbs.answer(request, *path);
  if (request.method != "GET" && chance(faults.compact)) store.compact();
  if (request.method == "POST" || request.method == "DELETE") look_for_orphans();
  changed();
  if (chance(faults.lose_answer)) return lose();
  reply(std::move(response));
}

void FakeApi::start_watch(const ApiPath& path, const http::CallOptions& options,
                          std::shared_ptr<http::ResponseHandler> handler,
                          const std::shared_ptr<CallHandle*>& call) {
  auto watch = std::make_shared<Watch>();
  watch->path = path;
  watch->handler = std::move(handler);
  (*call)->watch = watch;
  watches_.push_back(watch);
  watch->handler->on_head({200, "OK", {{"Content-Type", "application/json"}}});
  if (!watch->open) return;
  const bool initial = path.get("sendInitialEvents") == "true";
  if (initial && !can_stream_lists) {
    watch->handler->on_body(frame(
        "ERROR",
        *json::parse(status_answer(500, "InternalError", "storage feature is disabled").body)));
    return end(watch, {});
  }
  const std::uint64_t from = initial ? store.version() : path.number("resourceVersion");
  if (from < store.compacted()) {
    watch->handler->on_body(frame(
        "ERROR", *json::parse(status_answer(410, "Expired", "too old resource version").body)));
    return end(watch, {});
  }
  if (initial) {
    for (const auto& [key, object] : store.all(path.collection)) {
      if (!path.space.empty() && split_key(key).space != path.space) continue;
      if (watch->open && selected(path.get("labelSelector"), object)) {
        watch->handler->on_body(frame("ADDED", object));
      }
    }
    json::Value mark = bookmark_of(store.version());
    mark["metadata"]["annotations"]["k8s.io/initial-events-end"] = "true";
    if (watch->open) watch->handler->on_body(frame("BOOKMARK", mark));
  }
  const auto& history = store.history();
  while (watch->next < history.size() && history[watch->next].version <= from) ++watch->next;
  watch->told = from;
  watch->idle = options.idle_timeout;
  const auto seconds = std::chrono::seconds(path.number("timeoutSeconds"));
  watch->end_timer = loop_.after(seconds, [this, weak = std::weak_ptr(watch)] {
    if (const auto found = weak.lock()) end(found, {});
  });
  if (watch->idle > io::Duration(0)) {
    watch->idle_timer = loop_.after(watch->idle, [this, weak = std::weak_ptr(watch)] {
      if (const auto found = weak.lock()) end(found, make_status(Code::kTimeout, "silence"));
    });
  }
  changed();
}

void FakeApi::changed() {
  std::erase_if(watches_, [](const auto& watch) { return !watch->open; });
  for (const auto& watch : watches_) {
    if (std::exchange(watch->pumping, true)) continue;
    auto timer = std::make_shared<std::unique_ptr<io::Timer>>();
    const bool late = chance(faults.late_events);
    *timer = loop_.after(late ? delay() * kLate : delay(), [this, watch, timer] {
      watch->pumping = false;
      pump(watch);
    });
  }
}

void FakeApi::pump(const std::shared_ptr<Watch>& watch) {
  const auto& history = store.history();
  while (watch->open && !watch->silent && watch->next < history.size()) {
    const MemoryStore::Change& change = history[watch->next++];
    if (change.collection != watch->path.collection) continue;
    if (!watch->path.space.empty() &&
        change.object.string_at({"metadata", "namespace"}) != watch->path.space) {
      continue;
    }
    if (!selected(watch->path.get("labelSelector"), change.object)) continue;
    const std::string text = frame(change.type, change.object);
    if (chance(faults.silence)) {
      watch->silent = true;
      return;
    }
    if (chance(faults.cut_stream)) {
      if (chance(0.5)) watch->handler->on_body(std::string_view(text).substr(0, text.size() / 2));
      return end(watch, chance(0.5) ? Status() : make_status(Code::kUnavailable, "reset"));
    }
    if (chance(faults.garbage)) watch->handler->on_body("{\"type\":\"ADDED\",\n");
    watch->told = change.version;
    if (watch->open) watch->handler->on_body(text);
    if (watch->open && chance(faults.repeat_event)) watch->handler->on_body(text);
    if (watch->open && chance(faults.go_back)) {
      const MemoryStore::Change& old = history[random_() % watch->next];
      if (old.collection == change.collection) watch->handler->on_body(frame(old.type, old.object));
    }
    if (watch->idle > io::Duration(0)) {
      watch->idle_timer = loop_.after(watch->idle, [this, weak = std::weak_ptr(watch)] {
        if (const auto found = weak.lock()) end(found, make_status(Code::kTimeout, "silence"));
      });
    }
  }
}

void FakeApi::end(const std::shared_ptr<Watch>& watch, Status status) {
  if (!std::exchange(watch->open, false)) return;
  watch->end_timer.reset();
  watch->idle_timer.reset();
  watch->handler->on_done(std::move(status));
}

void FakeApi::bookmark() {
  const auto watches = watches_;
  for (const auto& watch : watches) {
    pump(watch);
    if (watch->open && !watch->silent) {
      watch->handler->on_body(frame("BOOKMARK", bookmark_of(store.version())));
    }
  }
}

void FakeApi::cut_all_streams() {
  const auto watches = watches_;
  for (const auto& watch : watches) end(watch, make_status(Code::kUnavailable, "cut"));
}

}  // namespace divisi::kube::testing
