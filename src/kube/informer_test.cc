// Informers against an API server in memory: what is told, in which order, after which faults.

#include "kube/informer.h"

#include "kube/testing/fake_api.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace divisi::kube {
namespace {

using namespace std::chrono_literals;
using testing::FakeApi;
using testing::SimLoop;

constexpr const char* kPods = "/api/v1/pods";

json::Value pod(const std::string& name, const std::string& value = "0") {
  json::Value made;
  made["metadata"]["name"] = name;
  made["metadata"]["namespace"] = "default";
  made["metadata"]["labels"]["value"] = value;
  return made;
}

std::vector<std::string> value_label(const json::Value& object) {
  return {std::string(object.string_at({"metadata", "labels", "value"}))};
}

class World {
 public:
  explicit World(std::uint64_t seed = 1) : api(loop, seed), client(loop, api) {}

  void create(const std::string& name, const std::string& value = "0") {
    api.store.create(kPods, "default/" + name, pod(name, value), "2026-01-01T00:00:00Z");
  }
  void update(const std::string& name, const std::string& value) {
    json::Value object = *api.store.find(kPods, "default/" + name);
    object["metadata"]["labels"]["value"] = value;
    api.store.update(kPods, "default/" + name, std::move(object));
  }
  void remove(const std::string& name) { api.store.remove(kPods, "default/" + name); }

  // Whatever was written behind the API's back is told now.
  void deliver() {
    api.bookmark();
    loop.run_for(1s);
  }

  // The invariant of every test here.
  bool equal(const Informer& informer) const {
    const auto& objects = api.store.all(kPods);
    if (informer.size() != objects.size()) return false;
    for (const auto& [key, object] : objects) {
      const ObjectPtr cached = informer.find(key);
      if (cached == nullptr || !(cached->value() == object)) return false;
      const auto found =
          informer.find_by("value", object.string_at({"metadata", "labels", "value"}));
      if (std::ranges::find(found, cached) == found.end()) return false;
    }
    return true;
  }

  SimLoop loop;
  FakeApi api;
  Client client;
};

InformerOptions pods(bool stream_list = true) {
  return {.reflector = {.resource = resources::pods(), .page = 7, .stream_list = stream_list}};
}

// Writes down what it is told.
class Told {
 public:
  explicit Told(Informer& informer) {
    informer.add_handler(
        {.on_added = [this](const ObjectPtr& now) { lines.push_back("+" + now->key()); },
         .on_changed = [this](const ObjectPtr&,
                              const ObjectPtr& now) { lines.push_back("~" + now->key()); },
         .on_deleted = [this](
                           const ObjectPtr& last,
                           bool missed) { lines.emplace_back((missed ? "?" : "-") + last->key()); },
         .on_synced = [this] { lines.emplace_back("synced"); }});
  }
  std::vector<std::string> take() { return std::exchange(lines, {}); }
  std::vector<std::string> lines;
};

class InformerTest : public ::testing::TestWithParam<bool> {
 protected:
  void begin() {
    informer_.add_index("value", value_label);
    informer_.start();
    ASSERT_TRUE(world_.loop.run_until([&] { return informer_.synced(); }, 60s));
    world_.loop.run_for(1s);  // the watch is open
  }
  World world_;
  Informer informer_{world_.client, pods(GetParam())};
  Told told_{informer_};
};

using Lines = std::vector<std::string>;

TEST_P(InformerTest, ListsByPagesOrAsAStreamThenFollows) {
  for (int i = 0; i < 20; ++i) world_.create("p" + std::to_string(10 + i));
  begin();
  EXPECT_EQ(informer_.size(), 20u);
  EXPECT_EQ(told_.lines.size(), 21u);
  EXPECT_EQ(told_.take().back(), "synced");
  world_.create("new");
  world_.update("p10", "1");
  world_.remove("p11");
  world_.deliver();
  EXPECT_EQ(told_.take(), (Lines{"+default/new", "~default/p10", "-default/p11"}));
  EXPECT_TRUE(world_.equal(informer_));
  EXPECT_EQ(informer_.reflector().counters().lists, 1u);
}

TEST_P(InformerTest, C23_ListsHavePagesAndWatchesHaveBookmarksAndARandomEnd) {
  std::vector<std::string> targets;
  world_.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    targets.push_back(request.target);
    return std::nullopt;
  };
  begin();
  world_.loop.run_for(20min);
  std::set<std::string> ends;
  for (const std::string& target : targets) {
    if (target.find("watch=true") == std::string::npos) {
      EXPECT_NE(target.find("limit=7"), std::string::npos) << target;
      continue;
    }
    EXPECT_NE(target.find("allowWatchBookmarks=true"), std::string::npos) << target;
    const std::size_t at = target.find("timeoutSeconds=");
    ASSERT_NE(at, std::string::npos) << target;
    const std::string seconds = target.substr(at + 15);
    EXPECT_GE(std::stoi(seconds), 300);
    EXPECT_LE(std::stoi(seconds), 600);
    ends.insert(seconds);
  }
  EXPECT_GT(ends.size(), 1u);
}

TEST_P(InformerTest, C25_AnExpiredVersionIsListedAnewAndMissedDeletesAreTold) {
  world_.create("a");
  world_.create("b");
  begin();
  told_.take();
  world_.api.cut_all_streams();
  world_.remove("a");
  world_.update("b", "2");
  world_.create("c");
  world_.api.store.compact();
  ASSERT_TRUE(world_.loop.run_until([&] { return world_.equal(informer_); }, 60s));
  EXPECT_EQ(told_.take(), (Lines{"~default/b", "+default/c", "?default/a"}));
  EXPECT_EQ(informer_.reflector().counters().lists, 2u);
}

TEST_P(InformerTest, C24_ABookmarkSparesAListAfterACompaction) {
  world_.create("a");
  begin();
  for (int i = 0; i < 5; ++i) {  // of another kind: this watch hears of none of it
    world_.api.store.create("/api/v1/services", "default/s" + std::to_string(i), pod("s"), "");
  }
  world_.deliver();
  world_.api.store.compact();
  world_.api.cut_all_streams();
  world_.loop.run_for(10s);
  EXPECT_EQ(informer_.reflector().counters().lists, 1u);
}

TEST_P(InformerTest, C26_TheEndOfAStreamIsNoErrorAndNothingIsListedAgain) {
  world_.create("a");
  begin();
  for (int i = 0; i < 5; ++i) {
    world_.loop.run_for(15min);  // the server ends each watch after 300 to 600 s
    world_.update("a", std::to_string(i));
    world_.deliver();
    EXPECT_TRUE(world_.equal(informer_));
  }
  EXPECT_EQ(informer_.reflector().counters().lists, 1u);
  EXPECT_GT(informer_.reflector().counters().watches, 5u);
  EXPECT_TRUE(informer_.reflector().last_error().ok());
}

TEST_P(InformerTest, C29_ADeleteOfAnObjectNeverSeenTellsNobody) {
  begin();
  told_.take();
  world_.create("brief");
  world_.remove("brief");
  world_.api.store.compact();
  world_.api.cut_all_streams();
  world_.loop.run_for(60s);
  EXPECT_EQ(told_.take(), Lines{});
  EXPECT_TRUE(world_.equal(informer_));
}

TEST_P(InformerTest, AnObjectMadeAnewBetweenTwoLooksIsDeletedAndAdded) {
  world_.create("a");
  begin();
  told_.take();
  world_.api.cut_all_streams();
  world_.remove("a");
  world_.create("a", "2");
  world_.api.store.compact();
  ASSERT_TRUE(world_.loop.run_until([&] { return world_.equal(informer_); }, 60s));
  EXPECT_EQ(told_.take(), (Lines{"?default/a", "+default/a"}));
}

TEST_P(InformerTest, AStreamThatGoesSilentIsGivenUp) {
  world_.create("a");
  begin();
  world_.api.faults.silence = 1;
  world_.update("a", "1");
  world_.deliver();
  world_.api.faults.silence = 0;
  EXPECT_FALSE(world_.equal(informer_));
  EXPECT_TRUE(world_.loop.run_until([&] { return world_.equal(informer_); }, 5min));
}

TEST_P(InformerTest, C30_ManagedFieldsAndWhatTheTransformStripsAreNotKept) {
  World world;
  world.create("a");
  json::Value object = *world.api.store.find(kPods, "default/a");
  object["metadata"]["managedFields"] = json::Array{json::Value("much")};
  object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}";
  object["spec"]["large"] = std::string(1000, 'x');
  world.api.store.update(kPods, "default/a", object);
  InformerOptions options = pods(GetParam());
  options.transform = [](json::Value& value) { value.erase("spec"); };
  Informer informer(world.client, std::move(options));
  informer.start();
  ASSERT_TRUE(world.loop.run_until([&] { return informer.synced(); }, 60s));
  const json::Value kept = informer.find("default/a")->value();
  EXPECT_EQ(kept.find_path({"metadata", "managedFields"}), nullptr);
  EXPECT_EQ(kept.find("spec"), nullptr);
  EXPECT_EQ(json::print(*kept.find_path({"metadata", "annotations"})), "{}");
}

TEST_P(InformerTest, ALateHandlerIsToldOfWhatIsThere) {
  world_.create("a");
  begin();
  Told late(informer_);
  EXPECT_EQ(late.take(), (Lines{"+default/a", "synced"}));
  world_.create("b");
  world_.deliver();
  EXPECT_EQ(late.take(), Lines{"+default/b"});
}

TEST_P(InformerTest, C36_ResyncTellsOfEverythingOnceInAWhile) {
  World world;
  world.create("a");
  InformerOptions options = pods(GetParam());
  options.resync_every = 10h;
  Informer informer(world.client, std::move(options));
  Told told(informer);
  informer.start();
  world.loop.run_for(8h);
  told.take();
  world.loop.run_for(4h);
  EXPECT_EQ(told.take(), Lines{"~default/a"});
}

INSTANTIATE_TEST_SUITE_P(Lists, InformerTest, ::testing::Values(false, true),
                         [](const auto& param) { return param.param ? "Streamed" : "Paged"; });

// kubernetes.md 1, convention 27.
TEST(InformerFallbackTest, C27_AServerThatCannotStreamListsIsListedByPages) {
  World world;
  world.api.can_stream_lists = false;
  for (int i = 0; i < 20; ++i) world.create("p" + std::to_string(i));
  Informer informer(world.client, pods());
  informer.add_index("value", value_label);
  informer.start();
  ASSERT_TRUE(world.loop.run_until([&] { return informer.synced(); }, 60s));
  EXPECT_TRUE(world.equal(informer));
  world.api.store.compact();
  world.api.cut_all_streams();
  world.create("late");
  ASSERT_TRUE(world.loop.run_until([&] { return world.equal(informer); }, 60s));
}

TEST(InformerFallbackTest, APageWhoseStateIsGoneIsAskedForAllAtOnce) {
  World world;
  for (int i = 0; i < 20; ++i) world.create("p" + std::to_string(10 + i));
  world.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.target.find("continue=") != std::string::npos) {
      world.create("between");
      world.api.store.compact();
      world.api.intercept = nullptr;
    }
    return std::nullopt;
  };
  Informer informer(world.client, pods(false));
  informer.add_index("value", value_label);
  informer.start();
  ASSERT_TRUE(world.loop.run_until([&] { return informer.synced(); }, 60s));
  EXPECT_TRUE(world.equal(informer));
}

TEST(InformerFallbackTest, AServerWhosePagesAlwaysExpireIsAskedForAllAtOnce) {
  World world;
  for (int i = 0; i < 20; ++i) world.create("p" + std::to_string(10 + i));
  std::vector<bool> limited;
  world.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.target.find("watch=") != std::string::npos) return std::nullopt;
    if (request.target.find("continue=") != std::string::npos) {
      return status_answer(410, "Expired", "the continue token is too old");
    }
    limited.push_back(request.target.find("limit=") != std::string::npos);
    return std::nullopt;
  };
  Informer informer(world.client, pods(false));
  informer.add_index("value", value_label);
  informer.start();
  ASSERT_TRUE(world.loop.run_until([&] { return informer.synced(); }, 60s));
  EXPECT_TRUE(world.equal(informer));
  EXPECT_EQ(limited, (std::vector<bool>{true, false}));
}

TEST(InformerFallbackTest, AnswersThatAreNoListAreTriedAgainAndNamed) {
  World world;
  int answers = 0;
  world.api.intercept = [&](const http::Request&) -> std::optional<http::Response> {
    switch (answers++) {
      case 0: return http::Response{200, {{"Content-Type", "text/html"}}, "<html>log in</html>"};
      case 1: return http::Response{200, {}, R"({"kind":"PodList","items":[{"metadata")"};
      case 2: return http::Response{200, {}, R"({"kind":"Pod"})"};
      default: return std::nullopt;
    }
  };
  Informer informer(world.client, pods(false));
  informer.start();
  ASSERT_TRUE(world.loop.run_until([&] { return answers == 1; }, 60s));
  world.loop.run_for(10ms);
  EXPECT_NE(informer.reflector().last_error().message().find("cannot be read as JSON"),
            std::string::npos)
      << informer.reflector().last_error().message();
  ASSERT_TRUE(world.loop.run_until([&] { return informer.synced(); }, 60s));
  EXPECT_EQ(informer.reflector().counters().errors, 3u);
  EXPECT_TRUE(informer.reflector().last_error().ok());
}

// A server that streams lists and never says where they end.
class EndlessLists final : public Transport {
 public:
  explicit EndlessLists(Transport& server) : server_(server) {}
  std::unique_ptr<http::Call> send(Lane lane, http::Request request, http::CallOptions options,
                                   std::shared_ptr<http::ResponseHandler> handler) override {
    return server_.send(lane, std::move(request), options,
                        std::make_shared<Handler>(std::move(handler)));
  }

 private:
  class Handler final : public http::ResponseHandler {
   public:
    explicit Handler(std::shared_ptr<http::ResponseHandler> next) : next_(std::move(next)) {}
    void on_head(http::ResponseHead head) override { next_->on_head(std::move(head)); }
    bool on_body(std::string_view piece) override {
      const auto bookmark = piece.find(R"({"type":"BOOKMARK")");
      return next_->on_body(piece.substr(0, std::min(bookmark, piece.size())));
    }
    void on_done(Status status) override { next_->on_done(std::move(status)); }

   private:
    const std::shared_ptr<http::ResponseHandler> next_;
  };
  Transport& server_;
};

TEST(InformerFallbackTest, AStreamedListThatNeverEndsIsAskedForByPages) {
  World world;
  EndlessLists endless(world.api);
  Client client(world.loop, endless);
  for (int i = 0; i < 20; ++i) world.create("p" + std::to_string(i));
  Informer informer(client, pods());
  informer.add_index("value", value_label);
  informer.start();
  world.loop.run_for(29s);
  EXPECT_FALSE(informer.synced());
  ASSERT_TRUE(world.loop.run_until([&] { return informer.synced(); }, 15s));
  EXPECT_TRUE(world.equal(informer));
}

TEST(InformerFallbackTest, AnErrorInTheLastPieceOfAStreamIsOneError) {
  World world;
  bool told = false;
  world.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (told || request.target.find("watch=") == std::string::npos) return std::nullopt;
    told = true;
    return http::Response{200,
                          {},
                          R"({"type":"ERROR","object":{"kind":"Status","code":500,"message":"no"}})"
                          "\n"};
  };
  Informer informer(world.client, pods(false));
  informer.start();
  ASSERT_TRUE(world.loop.run_until([&] { return told; }, 60s));
  world.loop.run_for(60s);
  EXPECT_EQ(informer.reflector().counters().errors, 1u);
  EXPECT_EQ(informer.reflector().counters().lists, 2u);
  EXPECT_TRUE(informer.reflector().last_error().ok());
}

// After any storm the cache equals the store. A failing seed is printed.
class InformerStormTest : public ::testing::TestWithParam<int> {};

TEST_P(InformerStormTest, TheCacheEqualsTheStoreAfterEveryStorm) {
  constexpr int kSeeds = 50;
  for (int offset = 0; offset < kSeeds; ++offset) {
    const auto seed =
        static_cast<std::uint64_t>(GetParam()) * kSeeds + static_cast<std::uint64_t>(offset);
    SCOPED_TRACE(seed);
    World world(seed);
    world.api.can_stream_lists = seed % 3 != 0;
    Informer informer(world.client, pods());
    informer.add_index("value", value_label);
    std::map<std::string, std::string> seen;  // as the handlers tell it
    informer.add_handler({.on_added =
                              [&](const ObjectPtr& now) {
                                EXPECT_TRUE(
                                    seen.emplace(now->key(), now->resource_version()).second);
                              },
                          .on_changed =
                              [&](const ObjectPtr& before, const ObjectPtr& now) {
                                EXPECT_EQ(seen[now->key()], before->resource_version());
                                seen[now->key()] = now->resource_version();
                              },
                          .on_deleted = [&](const ObjectPtr& last,
                                            bool) { EXPECT_EQ(seen.erase(last->key()), 1u); }});
    informer.start();
    std::mt19937_64 random(seed);
    const auto share = [&] { return 0.2 * std::uniform_real_distribution<>(0, 1)(random); };
    world.api.faults = {.refuse = share(),
                        .lose_answer = share(),
                        .lose_request = share(),
                        .cut_stream = share(),
                        .repeat_event = share(),
                        .go_back = share(),
                        .garbage = share(),
                        .silence = share() / 4};
    for (int change = 0; change < 200; ++change) {
      const std::string name = "p" + std::to_string(random() % 12);
      const bool there = world.api.store.find(kPods, "default/" + name) != nullptr;
      if (!there) {
        world.create(name, std::to_string(random() % 3));
      } else if (random() % 3 == 0) {
        world.remove(name);
      } else {
        world.update(name, std::to_string(random() % 3));
      }
      if (random() % 16 == 0) world.api.store.compact();
      if (random() % 8 == 0) world.api.bookmark();
      world.loop.run_for(std::chrono::milliseconds(random() % 400));
    }
    world.api.faults = {};
    ASSERT_TRUE(
        world.loop.run_until([&] { return informer.synced() && world.equal(informer); }, 15min));
    EXPECT_EQ(seen.size(), informer.size());
    for (const auto& [key, version] : seen)
      EXPECT_EQ(informer.find(key)->resource_version(), version);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, InformerStormTest, ::testing::Range(0, 8));

}  // namespace
}  // namespace divisi::kube
