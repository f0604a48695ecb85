#include "kube/reflector.h"

#include "base/log.h"
#include "io/jitter.h"

#include <charconv>
#include <optional>
#include <utility>

namespace divisi::kube {
namespace {

// A watch that ends sooner than this, without an event, is a sign of trouble.
constexpr std::chrono::seconds kShortWatch{1};
// The server ends a watch by itself; one that outlives its time by so much is ended here.
constexpr std::chrono::seconds kGrace{30};

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Versions of one server are numbers that grow; what is no number can only be compared for
// equality.
bool goes_back(std::string_view from, std::string_view to) {
  const auto before = number(from);
  const auto after = number(to);
  return before && after && *after < *before;
}

}  // namespace

Reflector::Reflector(Client& client, ReflectorOptions options, Sink& sink)
    : client_(client),
      options_(std::move(options)),
      sink_(sink),
      backoff_(options_.backoff),
      stream_list_(options_.stream_list),
      alive_(std::make_shared<bool>(true)) {}

Reflector::~Reflector() {
  stop();
}

void Reflector::start() {
  last_trouble_ = client_.reactor().now();
  list();
}

void Reflector::stop() {
  *alive_ = false;
  call_.reset();
  pause_.reset();
  stall_.reset();
}

std::string Reflector::what() const {
  return "watching " + options_.resource.plural +
         (options_.space.empty() ? "" : " of " + options_.space);
}

Query Reflector::selectors() const {
  return {{"labelSelector", options_.label_selector}, {"fieldSelector", options_.field_selector}};
}

void Reflector::list() {
  ++counters_.lists;
  version_.clear();
  if (stream_list_) {
    stream_initial();
  } else {
    list_page({}, false);
  }
}

void Reflector::list_page(std::string continue_token, bool whole) {
  if (continue_token.empty()) sink_.begin_list();
  const ListOptions page{.label_selector = options_.label_selector,
                         .field_selector = options_.field_selector,
                         .limit = whole ? 0 : options_.page,
                         .continue_token = std::move(continue_token)};
  client_.list(options_.resource, options_.space, page,
               [this, whole, alive = alive_](Result<json::Value> answer) {
                 if (*alive) page_came(std::move(answer), whole);
               });
}

void Reflector::page_came(Result<json::Value> page, bool whole) {
  if (!page) {
    // The state that the pages came from is gone: all at once cannot expire.
    if (page.error().code() == Code::kExpired && !whole) return list_page({}, true);
    return list_again(page.error());
  }
  if (json::Value* items = page->find("items"); items != nullptr && items->as_array() != nullptr) {
    for (json::Value& item : *items->as_array()) sink_.listed(std::move(item));
  } else if (items == nullptr || !items->is_null()) {
    return list_again(make_status(Code::kInternal, "{}: the server's list has no items", what()));
  }
  if (const std::string_view next = page->string_at({"metadata", "continue"}); !next.empty()) {
    return list_page(std::string(next), whole);
  }
  version_ = page->string_at({"metadata", "resourceVersion"});
  sink_.end_list();
  healthy();
  watch();
}

void Reflector::stream_initial() {
  initial_ = true;
  sink_.begin_list();
  Query query = selectors();
  query.insert(query.end(), {{"watch", "true"},
                             {"sendInitialEvents", "true"},
                             {"resourceVersionMatch", "NotOlderThan"},
                             {"allowWatchBookmarks", "true"}});
  open(query_text(query));
  progress_ = opened_;
  expect_progress();
}

// A server, or a cache in front of it, may take the request and never say where the list ends:
// without this the sink would wait for ever, while a list by pages does the same.
void Reflector::expect_progress() {
  io::Reactor& reactor = client_.reactor();
  stall_ = reactor.after(progress_ + options_.stalled_after - reactor.now(), [this] {
    if (client_.reactor().now() < progress_ + options_.stalled_after) return expect_progress();
    on_stream_end(make_status(Code::kInternal, "{}: the streamed list does not end", what()));
  });
}

void Reflector::watch() {
  initial_ = false;
  Query query = selectors();
  query.insert(query.end(),
               {{"watch", "true"}, {"resourceVersion", version_}, {"allowWatchBookmarks", "true"}});
  open(query_text(query));
}

void Reflector::open(std::string target) {
  ++counters_.watches;
  // Up to twice as long, so that not all watches end together.
  const auto least = static_cast<double>(options_.watch_for.count());
  const auto seconds = static_cast<std::int64_t>(least * (1 + io::jitter()));
  target += "&timeoutSeconds=" + std::to_string(seconds);
  decoder_ = WatchDecoder();
  list_next_ = false;
  stream_error_ = {};
  events_of_stream_ = 0;
  opened_ = client_.reactor().now();
  http::CallOptions options;
  options.deadline = std::chrono::seconds(seconds) + kGrace;
  options.idle_timeout = options_.idle_timeout;
  call_ = client_.stream(
      what(), options_.resource.path(options_.space) + target, options,
      [this](std::string_view piece) { on_piece(piece); },
      [this](Status status) { on_stream_end(std::move(status)); });
}

void Reflector::on_piece(std::string_view piece) {
  if (list_next_) return;  // what still comes of a stream that is given up
  const Status status =
      decoder_.feed(piece, [this](WatchEvent event) { return on_event(std::move(event)); });
  if (status.ok() && !list_next_) return;
  list_next_ = true;
  if (!status.ok()) stream_error_ = status.with_context(what());
  // Not from inside its own callback.
  client_.reactor().post([this, alive = alive_, opened = counters_.watches] {
    // The stream may have ended by itself meanwhile.
    if (*alive && call_ != nullptr && counters_.watches == opened) on_stream_end({});
  });
}

bool Reflector::on_event(WatchEvent event) {
  ++counters_.events;
  ++events_of_stream_;
  using Type = WatchEvent::Type;
  if (event.type == Type::kError) {
    stream_error_ = status_of_object(what(), event.object);
    list_next_ = true;
    return false;
  }
  if (initial_) return on_initial_event(std::move(event));
  const std::string before = version_;
  if (!advance(event.object)) return false;
  if (event.type == Type::kBookmark || version_ == before) return true;  // or sent twice
  if (event.type == Type::kDeleted) {
    sink_.deleted(std::move(event.object));
  } else {
    sink_.changed(std::move(event.object));
  }
  return true;
}

bool Reflector::on_initial_event(WatchEvent event) {
  using Type = WatchEvent::Type;
  if (event.type == Type::kBookmark) {
    if (event.object.string_at({"metadata", "annotations", "k8s.io/initial-events-end"}) !=
        "true") {
      return true;
    }
    version_ = event.object.string_at({"metadata", "resourceVersion"});
    initial_ = false;
    stall_.reset();
    sink_.end_list();
    healthy();
    return true;
  }
  if (event.type == Type::kAdded) {
    progress_ = client_.reactor().now();
    sink_.listed(std::move(event.object));
    return true;
  }
  stream_error_ =
      make_status(Code::kInternal, "{}: a change came before the end of the list", what());
  list_next_ = true;
  return false;
}

// False when the stream tells of the past: then nothing in it can be trusted.
bool Reflector::advance(const json::Value& object) {
  const std::string_view version = object.string_at({"metadata", "resourceVersion"});
  if (version.empty() || goes_back(version_, version)) {
    stream_error_ =
        make_status(Code::kInternal, "{}: the stream went back from version {} to \"{}\"", what(),
                    version_, version);
    list_next_ = true;
    return false;
  }
  version_ = version;
  return true;
}

void Reflector::on_stream_end(Status status) {
  call_.reset();
  stall_.reset();
  if (status.ok()) status = std::exchange(stream_error_, {});
  if (initial_) {
    // Refused, or never understood: the list by pages does the same. What says nothing about the
    // request (the path, the credentials, the load) does not count.
    const Code code = status.code();
    if (code == Code::kInvalid || code == Code::kInternal || code == Code::kNotFound) {
      if (stream_list_) log::debug("{}; listing by pages instead", status.message());
      stream_list_ = false;
    }
    return list_again(status);
  }
  if (status.code() == Code::kExpired) {
    // No trouble: it was away for too long, or the server has compacted.
    return list_again(status);
  }
  if (list_next_) return list_again(status);
  if (!status.ok() && status.code() != Code::kUnavailable && status.code() != Code::kClosed &&
      status.code() != Code::kTimeout && status.code() != Code::kTooManyRequests) {
    return list_again(status);
  }
  const bool lived = client_.reactor().now() - opened_ >= kShortWatch || events_of_stream_ > 0;
  if (lived) {
    healthy();
    return watch();
  }
  if (!status.ok()) {
    ++counters_.errors;
    last_error_ = status;
  }
  retry([this] { watch(); });
}

void Reflector::list_again(const Status& why) {
  if (!why.ok()) {
    ++counters_.errors;
    // What only somebody else can mend is said once; the rest passes by itself.
    const bool no_right = why.code() == Code::kForbidden || why.code() == Code::kUnauthorized;
    if (no_right && last_error_.code() != why.code()) {
      log::warning("{}; trying again until it is allowed", why.message());
    } else {
      log::debug("{}; listing again", why.message());
    }
    last_error_ = why;
    if (why.code() == Code::kForbidden) client_.refused(why);
  }
  retry([this] { list(); });
}

void Reflector::retry(std::function<void()> again) {
  const io::TimePoint now = client_.reactor().now();
  if (now - last_trouble_ >= options_.healthy_after) backoff_.reset();
  last_trouble_ = now;
  pause_ = client_.reactor().after(backoff_.next(), std::move(again));
}

void Reflector::healthy() {
  last_error_ = {};
}

}  // namespace divisi::kube
