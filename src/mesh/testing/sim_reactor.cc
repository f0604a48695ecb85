#include "mesh/testing/sim_reactor.h"

#include "mesh/testing/sim_wire.h"

namespace divisi::mesh::testing {

namespace {

class SimTimer final : public io::Timer {
 public:
  std::weak_ptr<bool> alive() const { return alive_; }

 private:
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class SimListener final : public io::Listener {
 public:
  SimListener(SimWorld& world, io::Address address) : world_(world), address_(std::move(address)) {}
  ~SimListener() override { world_.listeners.erase(address_.to_string()); }
  io::Address address() const override { return address_; }

 private:
  SimWorld& world_;
  const io::Address address_;
};

}  // namespace

void SimReactor::post(std::function<void()> work) {
  world_.after({}, [alive = std::weak_ptr(alive_), run = std::move(work)] {
    if (!alive.expired()) run();
  });
}

std::unique_ptr<io::Timer> SimReactor::after(io::Duration delay, std::function<void()> work) {
  auto timer = std::make_unique<SimTimer>();
  world_.after(delay, [alive = timer->alive(), run = std::move(work)] {
    if (!alive.expired()) run();
  });
  return timer;
}

Result<std::unique_ptr<io::Listener>> SimReactor::listen(
    const io::Address& where, std::function<void(std::shared_ptr<io::Stream>)> on_accept) {
  const std::string name = where.to_string();
  if (world_.listeners.contains(name)) {
    return failure(Code::kUnavailable, "cannot listen on {}: in use", name);
  }
  world_.listeners[name] = [alive = std::weak_ptr(alive_),
                            run = std::move(on_accept)](std::shared_ptr<io::Stream> stream) {
    if (!alive.expired()) run(std::move(stream));
  };
  return std::make_unique<SimListener>(world_, where);
}

std::unique_ptr<io::Timer> SimReactor::dial(
    const io::Address& where, io::Duration timeout,
    std::function<void(Result<std::shared_ptr<io::Stream>>)> on_done) {
  auto handle = std::make_unique<SimTimer>();
  Random& random = world_.random();
  const auto delay = random.duration(world_.weather.longest_delay);
  const bool refused = random.chance(world_.weather.refused_dials);
  const bool silent = refused && random.chance(0.2);
  world_.after(silent ? timeout : delay, [this, alive = handle->alive(), done = std::move(on_done),
                                          name = where.to_string(), refused] {
    if (alive.expired()) return;
    const auto found = world_.listeners.find(name);
    if (refused || found == world_.listeners.end()) {
      return done(failure(Code::kUnavailable, "cannot reach {}", name));
    }
    auto ends = SimWire::connect(world_);
    const auto arrives = world_.random().duration(world_.weather.longest_delay);
    world_.after(arrives, [accept = found->second, far = ends[1]] { accept(far); });
    done(std::static_pointer_cast<io::Stream>(ends[0]));
  });
  return handle;
}

void SimReactor::hand_off(std::function<void()> work, std::function<void()>, bool) {
  handed_off_.push_back(std::move(work));
  world_.after(world_.random().duration(slowest_callback),
               [this, alive = std::weak_ptr(alive_), item = std::prev(handed_off_.end())] {
                 if (alive.expired()) return;
                 const auto run = std::move(*item);
                 handed_off_.erase(item);
                 run();
                 if (settle) settle();
               });
}

void SimReactor::run_handed_off() {
  alive_ = std::make_shared<bool>(true);  // their turns will find nothing
  for (auto& work : std::exchange(handed_off_, {})) work();
  if (settle) settle();
}

}  // namespace divisi::mesh::testing
