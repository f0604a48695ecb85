// Informers against a real API server: under churn, and behind a proxy that spoils everything.

#include "kubernetes/suite/cluster.h"
#include "kubernetes/suite/fault_proxy.h"

#include <atomic>
#include <random>

namespace divisi::kube::suite {
namespace {

using namespace std::chrono_literals;

class InformerSuite : public Cluster {
 protected:
  // Creates, changes and deletes objects, many at once, until `count` writes are done; every fourth
  // one through `spoiled`.
  void churn(int count, int objects, std::uint64_t seed, Client& spoiled) {
    std::mt19937_64 random(seed);
    std::atomic<int> pending{0};
    for (int i = 0; i < count; ++i) {
      const std::string name = "m" + std::to_string(random() % static_cast<std::uint64_t>(objects));
      const std::uint64_t kind = random() % 10;
      wait_below(pending, 32);
      ++pending;
      session_->reactor().post([&, name, kind, i] {
        Client& writer = i % 4 == 0 ? spoiled : client();
        // What the other writes did to that name before decides the outcome; any is fine.
        const auto done = [&](const Result<json::Value>&) {
          --pending;
          pending.notify_one();
        };
        if (kind < 6) {
          json::Value apply = config_map(name, std::to_string(i));
          writer.patch(resources::config_maps(), space_, name, PatchType::kApply, apply,
                       {.field_manager = "suite", .force = true}, done);
        } else if (kind < 8) {
          writer.create(resources::config_maps(), space_, config_map(name, std::to_string(i)), {},
                        done);
        } else {
          writer.remove(resources::config_maps(), space_, name, {}, done);
        }
      });
    }
    wait_below(pending, 1);
  }

  static void wait_below(std::atomic<int>& pending, int limit) {
    for (int seen = pending; seen >= limit; seen = pending) pending.wait(seen);
  }

  std::unique_ptr<Informer> follow(Client& through, bool stream_list) {
    std::unique_ptr<Informer> informer;
    session_->reactor().run_on_loop([&] {
      informer = std::make_unique<Informer>(
          through, InformerOptions{.reflector = {.resource = resources::config_maps(),
                                                 .space = space_,
                                                 .label_selector = "app=suite",
                                                 .page = 100,
                                                 .stream_list = stream_list,
                                                 .idle_timeout = 10s,
                                                 .backoff = {50ms, 1s}}});
      informer->start();
    });
    return informer;
  }
  void end(std::unique_ptr<Informer>& informer) {
    session_->reactor().run_on_loop([&] { informer.reset(); });
  }
  bool equal(const Informer& informer) {
    return eventually([&] { return informer.synced(); }) && settles(informer);
  }
  // Lists of kube-root-ca.crt and others are not ours: the selector leaves them out.
  bool settles(const Informer& informer) {
    const auto deadline = std::chrono::steady_clock::now() + 120s;
    std::string difference_seen;
    do {
      difference_seen = difference_of(informer);
      if (difference_seen.empty()) return true;
      std::this_thread::sleep_for(50ms);  // between two looks
    } while (std::chrono::steady_clock::now() < deadline);
    ADD_FAILURE() << difference_seen
                  << "; last error: " << informer.reflector().last_error().message();
    return false;
  }
  std::string difference_of(const Informer& informer) {
    auto fresh = list({.label_selector = "app=suite"});
    if (!fresh) return fresh.error().message();
    std::map<std::string, std::string> listed;
    for (const json::Value& item : *fresh->find("items")->as_array()) {
      listed[object_key(space_, item.string_at({"metadata", "name"}))] =
          item.string_at({"metadata", "resourceVersion"});
    }
    std::map<std::string, std::string> cached;
    session_->reactor().run_on_loop([&] {
      for (const ObjectPtr& object : informer.all())
        cached[object->key()] = object->resource_version();
    });
    return listed == cached ? std::string()
                            : fmt::format("{} listed, {} cached", listed.size(), cached.size());
  }
};

TEST_F(InformerSuite, TheCacheEqualsAFreshListAfterChurnOf2000Objects) {
  auto paged = follow(client(), false);
  auto streamed = follow(client(), true);
  churn(4000, 2000, 1, client());
  EXPECT_TRUE(equal(*paged));
  EXPECT_TRUE(equal(*streamed));
  std::uint64_t lists = 0;
  session_->reactor().run_on_loop([&] { lists = streamed->reflector().counters().lists; });
  EXPECT_EQ(lists, 1u) << "the server can stream its list, and nothing made it list again";
  end(paged);
  end(streamed);
}

TEST_F(InformerSuite, TheCacheEqualsAFreshListAfterEveryStorm) {
  std::unique_ptr<FaultProxy> proxy;
  std::unique_ptr<Transport> spoiled;
  std::unique_ptr<Client> through;
  session_->reactor().run_on_loop([&] {
    auto made = FaultProxy::listen(session_->reactor(), client().transport(), 1);
    ASSERT_TRUE(made) << made.error().message();
    proxy = *std::move(made);
    Config config;
    config.server = proxy->url();
    auto connected = connect(session_->reactor(), config);
    ASSERT_TRUE(connected) << connected.error().message();
    spoiled = *std::move(connected);
    through = std::make_unique<Client>(session_->reactor(), *spoiled);
  });
  ASSERT_NE(through, nullptr);
  const std::vector<std::pair<const char*, Storm>> storms{{"refusals", {.refuse = 0.5}},
                                                          {"conflicts", {.conflict = 0.5}},
                                                          {"410s", {.expire = 0.7, .cut = 0.3}},
                                                          {"dropped", {.drop = 0.5}},
                                                          {"cut", {.cut = 0.2}},
                                                          {"half-closed", {.half_close = 0.2}},
                                                          {"repeated", {.repeat = 0.3}},
                                                          {"slow", {.slow = 0.3}},
                                                          {"all",
                                                           {.refuse = 0.1,
                                                            .conflict = 0.1,
                                                            .expire = 0.1,
                                                            .drop = 0.1,
                                                            .cut = 0.1,
                                                            .half_close = 0.1,
                                                            .repeat = 0.1,
                                                            .slow = 0.1}}};
  for (const bool stream_list : {true, false}) {
    auto informer = follow(*through, stream_list);
    std::uint64_t seed = 1;
    for (const auto& [name, storm] : storms) {
      SCOPED_TRACE(name);
      std::uint64_t before = 0;
      session_->reactor().run_on_loop([&, &wild = storm] {
        before = proxy->faults();
        proxy->set_storm(wild);
        proxy->cut_streams();
      });
      std::uint64_t faults = before;
      // Some storms blow only where something flows, and the watch pauses before it begins again.
      for (int i = 0; i < 100 && faults == before; ++i) {
        churn(200, 100, ++seed, *through);
        session_->reactor().run_on_loop([&] { faults = proxy->faults(); });
      }
      EXPECT_GT(faults, before) << "an idle storm";
      session_->reactor().run_on_loop([&] { proxy->set_storm({}); });
      EXPECT_TRUE(equal(*informer));
    }
    end(informer);
  }
  session_->reactor().run_on_loop([&] {
    through.reset();
    spoiled.reset();
    proxy.reset();
  });
}

}  // namespace
}  // namespace divisi::kube::suite
