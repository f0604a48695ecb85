// SimReactor: the io::Reactor of one simulated process in a SimWorld.
#pragma once

#include "io/reactor.h"
#include "mesh/testing/sim_world.h"

#include <list>
#include <memory>

namespace divisi::mesh::testing {

class SimReactor final : public io::Reactor {
 public:
  explicit SimReactor(SimWorld& world) : world_(world) {}

  // Batches wait for their callbacks up to this long.
  io::Duration slowest_callback{0};
  // Runs after each handed-off piece of work: waits for a loop that went on in its own thread.
  std::function<void()> settle;

  bool handed_off() const { return !handed_off_.empty(); }
  // Runs what was handed off and is still waiting; at the end of the process.
  void run_handed_off();

  io::TimePoint now() const override { return world_.now(); }
  void post(std::function<void()> work) override;
  void run_on_loop(std::function<void()> work) override { work(); }
  std::unique_ptr<io::Timer> after(io::Duration delay, std::function<void()> work) override;
  Result<std::unique_ptr<io::Listener>> listen(
      const io::Address& where,
      std::function<void(std::shared_ptr<io::Stream>)> on_accept) override;
  std::unique_ptr<io::Timer> dial(
      const io::Address& where, io::Duration timeout,
      std::function<void(Result<std::shared_ptr<io::Stream>>)> on_done) override;
  void hand_off(std::function<void()> work, std::function<void()> otherwise, bool heavy) override;

 private:
  SimWorld& world_;
  std::list<std::function<void()>> handed_off_;
  // Expires with the process: nothing of it runs afterwards.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::mesh::testing
