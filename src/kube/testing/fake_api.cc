#include "kube/testing/fake_api.h"

#include "json/patch.h"
#include "json/selector.h"
#include "kube/resource.h"
#include "kube/time.h"

#include <charconv>
#include <map>
#include <optional>
#include <utility>

namespace divisi::kube::testing {

struct FakeApi::Path {
  std::string collection{};  // without the name space
  std::string space{};
  std::string name{};
  std::string subresource{};
  std::map<std::string, std::string> query{};

  std::string key() const { return object_key(space, name); }
  std::string get(const std::string& parameter) const {
    const auto found = query.find(parameter);
    return found == query.end() ? std::string() : found->second;
  }
};

struct FakeApi::Watch {
  Path path;
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

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

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

http::Response json_answer(int status, const json::Value& value) {
  return {status, {{"Content-Type", "application/json"}}, json::print(value)};
}

bool selected(const std::string& selector, const json::Value& object) {
  if (selector.empty()) return true;
  const auto parsed = json::LabelSelector::parse(selector);
  const json::Value* labels = object.find_path({"metadata", "labels"});
  return parsed && parsed->matches(labels == nullptr ? json::Value() : *labels);
}

}  // namespace

http::Response status_answer(int code, const std::string& reason, const std::string& message) {
  json::Value status;
  status["kind"] = "Status";
  status["apiVersion"] = "v1";
  status["status"] = "Failure";
  status["message"] = message;
  status["reason"] = reason;
  status["code"] = code;
  return json_answer(code, status);
}

FakeApi::FakeApi(SimLoop& loop, std::uint64_t seed) : loop_(loop), random_(seed) {}
FakeApi::~FakeApi() = default;

bool FakeApi::chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

io::Duration FakeApi::delay() {
  return std::chrono::microseconds(std::uniform_int_distribution<>(50, 3000)(random_));
}

std::optional<FakeApi::Path> FakeApi::parse(const std::string& target) {
  Path path;
  const std::size_t mark = target.find('?');
  if (mark != std::string::npos) {
    std::string_view rest = std::string_view(target).substr(mark + 1);
    while (!rest.empty()) {
      const std::string_view pair = rest.substr(0, rest.find('&'));
      rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
      const std::size_t equals = pair.find('=');
      if (equals == std::string_view::npos) continue;
      std::string value;
      if (!http::decode_component(pair.substr(equals + 1), value)) return std::nullopt;
      path.query[std::string(pair.substr(0, equals))] = value;
    }
  }
  std::vector<std::string> parts;
  std::string_view rest =
      std::string_view(target).substr(1, mark == std::string::npos ? mark : mark - 1);
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    parts.emplace_back(part);
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  const std::size_t group = parts.empty() || parts[0] == "api" ? 2 : 3;
  if (parts.size() <= group) return std::nullopt;
  std::size_t next = group;
  if (parts[next] == "namespaces" && parts.size() > next + 2) {
    path.space = parts[next + 1];
    next += 2;
  }
  for (std::size_t i = 0; i < group; ++i) path.collection += "/" + parts[i];
  path.collection += "/" + parts[next++];
  if (next < parts.size()) path.name = parts[next++];
  if (next < parts.size()) path.subresource = parts[next];
  return path;
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
    *timer = loop_.after(delay(), [handler, call, timer, response = std::move(response)] {
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
  if (intercept) {
    if (auto instead = intercept(request)) return reply(*std::move(instead));
  }
  const auto path = parse(request.target);
  if (!path)
    return reply(status_answer(404, "NotFound", "the server could not find " + request.target));
  // A caller that has gone changes nothing: the request is on its way.
  if (request.method == "GET" && path->get("watch") == "true") {
    if (*call != nullptr) start_watch(*path, options, handler, call);
    return;
  }
  http::Response response = answer(request, *path);
  if (request.method != "GET" && chance(faults.compact)) store.compact();
  wake_watches();
  if (chance(faults.lose_answer)) return lose();
  reply(std::move(response));
}

http::Response FakeApi::answer(const http::Request& request, const Path& path) {
  if (request.method != "GET") return write(request, path);
  if (path.name.empty()) return list(path);
  const json::Value* found = store.find(path.collection, path.key());
  if (found == nullptr) return status_answer(404, "NotFound", path.key() + " not found");
  return json_answer(200, *found);
}

http::Response FakeApi::list(const Path& path) {
  json::Array items;
  const std::string after = path.get("continue");
  const std::uint64_t limit = number(path.get("limit"));
  // A token is "version:key"; the pages of one list are of one moment only as long as nothing is
  // compacted, which is as much as the readers may rely on.
  const std::size_t colon = after.find(':');
  if (!after.empty() && number(after.substr(0, colon)) < store.compacted()) {
    return status_answer(410, "Expired", "the continue token is too old");
  }
  json::Value answer;
  std::string last;
  bool more = false;
  for (const auto& [key, object] : store.all(path.collection)) {
    if (!after.empty() && key <= after.substr(colon + 1)) continue;
    if (!path.space.empty() && split_key(key).space != path.space) continue;
    if (!selected(path.get("labelSelector"), object)) continue;
    if (limit > 0 && items.size() == limit) {
      more = true;
      break;
    }
    items.push_back(object);
    last = key;
  }
  const std::string version =
      after.empty() ? std::to_string(store.version()) : after.substr(0, colon);
  answer["kind"] = "List";
  answer["metadata"]["resourceVersion"] = version;
  if (more) answer["metadata"]["continue"] = version + ":" + last;
  answer["items"] = std::move(items);
  return json_answer(200, answer);
}

http::Response FakeApi::write(const http::Request& request, const Path& path) {
  const auto body = json::parse(request.body);
  if (!body) return status_answer(400, "BadRequest", body.error().message());
  if (request.method == "POST") {
    json::Value object = *body;
    if (object.string_at({"metadata", "namespace"}).empty() && !path.space.empty()) {
      object["metadata"]["namespace"] = path.space;
    }
    const std::string key = object_key(path.space, object.string_at({"metadata", "name"}));
    if (store.find(path.collection, key) != nullptr) {
      return status_answer(409, "AlreadyExists", key + " already exists");
    }
    return json_answer(
        201, store.create(path.collection, key, std::move(object), rfc3339(loop_.wall())));
  }
  const json::Value* found = store.find(path.collection, path.key());
  if (found == nullptr) return status_answer(404, "NotFound", path.key() + " not found");
  if (request.method == "DELETE") {
    const std::string_view uid = body->string_at({"preconditions", "uid"});
    if (!uid.empty() && uid != found->string_at({"metadata", "uid"})) {
      return status_answer(409, "Conflict", "the UID in the precondition does not match");
    }
    return json_answer(200, store.remove(path.collection, path.key()));
  }
  json::Value object = *found;
  if (request.method == "PATCH") {
    json::apply_merge_patch(object, *body);
  } else {
    object = *body;
  }
  const std::string_view version = object.string_at({"metadata", "resourceVersion"});
  if (!version.empty() && version != found->string_at({"metadata", "resourceVersion"})) {
    return status_answer(409, "Conflict", "the object has been modified");
  }
  object["metadata"]["resourceVersion"] = found->string_at({"metadata", "resourceVersion"});
  if (object == *found) return json_answer(200, object);
  return json_answer(200, store.update(path.collection, path.key(), std::move(object)));
}

void FakeApi::start_watch(const Path& path, const http::CallOptions& options,
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
  const std::uint64_t from = initial ? store.version() : number(path.get("resourceVersion"));
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
  const auto seconds = std::chrono::seconds(number(path.get("timeoutSeconds")));
  watch->end_timer = loop_.after(seconds, [this, weak = std::weak_ptr(watch)] {
    if (const auto found = weak.lock()) end(found, {});
  });
  if (watch->idle > io::Duration(0)) {
    watch->idle_timer = loop_.after(watch->idle, [this, weak = std::weak_ptr(watch)] {
      if (const auto found = weak.lock()) end(found, make_status(Code::kTimeout, "silence"));
    });
  }
  wake_watches();
}

void FakeApi::wake_watches() {
  std::erase_if(watches_, [](const auto& watch) { return !watch->open; });
  for (const auto& watch : watches_) {
    if (std::exchange(watch->pumping, true)) continue;
    auto timer = std::make_shared<std::unique_ptr<io::Timer>>();
    *timer = loop_.after(delay(), [this, watch, timer] {
      watch->pumping = false;
      pump(watch);
    });
  }
}

void FakeApi::pump(const std::shared_ptr<Watch>& watch) {
  const auto& history = store.history();
  while (watch->open && !watch->silent && watch->next < history.size()) {
    const FakeStore::Change& change = history[watch->next++];
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
      const FakeStore::Change& old = history[random_() % watch->next];
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
