#include "kube/recorder.h"

#include "base/log.h"
#include "io/crypto.h"
#include "json/patch.h"
#include "kube/time.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {
namespace {

// Bounds of the API.
constexpr std::size_t kMaxReason = 128;
constexpr std::size_t kMaxMessage = 1024;
constexpr std::size_t kMaxName = 253;

// Cut at a whole character.
std::string cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return std::string(text.substr(0, most));
}

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string key;
  for (const std::string_view part : parts) key.append(part).push_back('\n');
  return key;
}

}  // namespace

EventRecorder::EventRecorder(Client& client, RecorderOptions options)
    : client_(client),
      options_(std::move(options)),
      writes_{options_.writes_at_once, client.reactor().now()},
      alive_(std::make_shared<bool>(true)) {}

EventRecorder::~EventRecorder() {
  *alive_ = false;
}

bool EventRecorder::take(Bucket& bucket, double most, double per_second) const {
  const io::TimePoint now = client_.reactor().now();
  const std::chrono::duration<double> passed = now - bucket.at;
  bucket.tokens = std::min(most, bucket.tokens + passed.count() * per_second);
  bucket.at = now;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

bool EventRecorder::allowed(const std::string& object) {
  if (buckets_.size() > options_.remembered) buckets_.clear();
  const auto [place, fresh] =
      buckets_.try_emplace(object, Bucket{options_.burst, client_.reactor().now()});
  return take(place->second, options_.burst, 1.0 / static_cast<double>(options_.refill.count()));
}

std::shared_ptr<EventRecorder::Known> EventRecorder::known(const std::string& key) {
  if (const auto found = known_.find(key); found != known_.end()) {
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }
  order_.emplace_front(key, std::make_shared<Known>());
  known_[key] = order_.begin();
  if (order_.size() > options_.remembered) {
    known_.erase(order_.back().first);
    order_.pop_back();
  }
  return order_.front().second;
}

void EventRecorder::record(const json::Value& about, std::string_view type, std::string_view reason,
                           std::string_view message, std::string_view lane) {
  const std::string_view uid = about.string_at({"metadata", "uid"});
  const std::string object =
      joined({about.string_at({"kind"}), about.string_at({"metadata", "namespace"}),
              about.string_at({"metadata", "name"}), uid});
  if (!allowed(lane.empty() ? object : joined({object, lane}))) return;

  const io::TimePoint now = client_.reactor().now();
  const std::string group = joined({object, type, reason});
  std::string text = cut(message, kMaxMessage);
  if (alike_.size() > options_.remembered) alike_.clear();
  auto& times = alike_[group].times;
  std::erase_if(times, [&](io::TimePoint each) { return now - each > options_.alike_within; });
  const std::string own = joined({group, text});
  const auto most = static_cast<std::size_t>(options_.alike);
  if (!known_.contains(own)) {
    if (times.size() > most) times.erase(times.begin());
    times.push_back(now);
  }
  const bool too_many = times.size() > most;
  if (too_many) text = cut("(combined from similar events): " + text, kMaxMessage);

  const std::shared_ptr<Known> event = known(too_many ? group : own);
  if (event->count == 0 || now - event->last > options_.alike_within) {
    *event = Known{};
    const json::Value made = make(about, type, reason);
    event->space = made.string_at({"metadata", "namespace"});
    event->name = made.string_at({"metadata", "name"});
    event->text = json::print(made);
    event->is_warning = type == "Warning";
  }
  ++event->count;
  event->last = now;
  event->last_time = options_.wall_clock();
  event->message = std::move(text);
  event->dirty = true;
  if (!event->writing) write(event);
}

json::Value EventRecorder::make(const json::Value& about, std::string_view type,
                                std::string_view reason) const {
  const std::string_view name = about.string_at({"metadata", "name"});
  std::string_view space = about.string_at({"metadata", "namespace"});
  if (space.empty()) space = "default";  // where those of objects without a name space go
  const std::string now = rfc3339(options_.wall_clock());

  json::Value event;
  event["apiVersion"] = "v1";
  event["kind"] = "Event";
  const std::string suffix = fmt::format(".{:016x}", io::random_u64());
  event["metadata"]["name"] = cut(name, kMaxName - suffix.size()) + suffix;
  event["metadata"]["namespace"] = space;
  json::Value& involved = event["involvedObject"];
  for (const std::string_view field : {"kind", "apiVersion"}) {
    involved[field] = about.string_at({field});
  }
  involved["name"] = name;
  involved["namespace"] = about.string_at({"metadata", "namespace"});
  involved["uid"] = about.string_at({"metadata", "uid"});
  involved["resourceVersion"] = about.string_at({"metadata", "resourceVersion"});
  event["type"] = type;
  event["reason"] = cut(reason, kMaxReason);
  event["source"]["component"] = options_.component;
  event["reportingComponent"] = options_.component;
  event["reportingInstance"] = options_.instance;
  event["firstTimestamp"] = now;
  return event;
}

void EventRecorder::write(const std::shared_ptr<Known>& known) {
  known->writing = true;
  waiting_.push_back(known);
  if (waiting_.size() > options_.remembered) {
    auto least = std::ranges::find_if(
        waiting_, [](const std::shared_ptr<Known>& each) { return !each->is_warning; });
    if (least == waiting_.end()) least = waiting_.begin();
    (*least)->writing = false;
    waiting_.erase(least);
  }
  write_waiting();
}

void EventRecorder::write_waiting() {
  while (!waiting_.empty() && take(writes_, options_.writes_at_once, options_.writes_per_second)) {
    const std::shared_ptr<Known> next = std::move(waiting_.front());
    waiting_.pop_front();
    send(next);
  }
  if (waiting_.empty() || turn_ != nullptr) return;
  const std::chrono::duration<double> until((1 - writes_.tokens) / options_.writes_per_second);
  turn_ = client_.reactor().after(std::chrono::ceil<std::chrono::milliseconds>(until), [this] {
    turn_.reset();
    write_waiting();
  });
}

void EventRecorder::send(const std::shared_ptr<Known>& known) {
  known->dirty = false;
  const auto done = [this, known, alive = alive_](const Result<json::Value>& answer) {
    if (*alive) written(known, answer);
  };
  json::Value news;
  news["count"] = known->count;
  news["message"] = known->message;
  news["lastTimestamp"] = rfc3339(known->last_time);
  constexpr auto kAnswer = Answer::kNone;
  if (!known->is_new) {
    return client_.patch(resources::events(), known->space, known->name, PatchType::kMerge, news,
                         {.answer = kAnswer}, done);
  }
  json::Value event = *json::parse(known->text);
  json::apply_merge_patch(event, news);
  client_.create(resources::events(), known->space, event, {.answer = kAnswer}, done);
}

void EventRecorder::written(const std::shared_ptr<Known>& known,
                            const Result<json::Value>& answer) {
  known->writing = false;
  if (answer) {
    known->is_new = false;
  } else if (!known->is_new && answer.error().code() == Code::kNotFound) {
    // Events live for an hour; this one is told anew.
    known->is_new = true;
    known->dirty = true;
  } else {
    log::warning("an event could not be told: {}", answer.error().message());
  }
  if (known->dirty) write(known);
}

}  // namespace divisi::kube
