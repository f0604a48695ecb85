#include "divisi/subscription.h"

#include "divisi/parallel.h"
#include "runtime/listener_gate.h"

#include <algorithm>
#include <utility>

namespace divisi {

namespace detail {

namespace {

class Inside {
 public:
  explicit Inside(ListenerGate& gate) : gate_(gate), entered_(gate.enter()) {}
  ~Inside() {
    if (entered_) gate_.leave();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  explicit operator bool() const noexcept { return entered_; }

 private:
  ListenerGate& gate_;
  const bool entered_;
};

class GatedListener final : public Listener {
 public:
  GatedListener(std::unique_ptr<Listener> listener, std::shared_ptr<ListenerGate> gate)
      : listener_(std::move(listener)), gate_(std::move(gate)) {
    function = listener_->function;
  }

  void call(const LocalCall& call) override {
    if (const Inside inside(*gate_); inside) listener_->call(call);
  }
  void call(const PayloadView& payload) override {
    if (const Inside inside(*gate_); inside) listener_->call(payload);
  }
  bool is(const void* other) const noexcept override { return listener_->is(other); }

 private:
  const std::unique_ptr<Listener> listener_;
  const std::shared_ptr<ListenerGate> gate_;
};

}  // namespace

bool ListenerGate::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  inside_.push_back(std::this_thread::get_id());
  return true;
}

void ListenerGate::leave() {
  const std::lock_guard lock(mutex_);
  inside_.erase(std::ranges::find(inside_, std::this_thread::get_id()));
  left_.notify_all();
}

void ListenerGate::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  left_.wait(lock, [this] {
    return std::ranges::all_of(
        inside_, [](std::thread::id thread) { return thread == std::this_thread::get_id(); });
  });
}

std::unique_ptr<Listener> gated(std::unique_ptr<Listener> listener,
                                std::shared_ptr<ListenerGate> gate) {
  return std::make_unique<GatedListener>(std::move(listener), std::move(gate));
}

}  // namespace detail

Subscription::Subscription() noexcept = default;
Subscription::Subscription(std::shared_ptr<detail::ListenerGate> gate, std::string_view event,
                           ListenerId id)
    : gate_(std::move(gate)), event_(event), id_(id) {}
Subscription::Subscription(Subscription&& other) noexcept = default;

Subscription& Subscription::operator=(Subscription&& other) noexcept {
  if (this == &other) return *this;
  end();
  gate_ = std::move(other.gate_);
  event_ = std::move(other.event_);
  id_ = other.id_;
  return *this;
}

Subscription::~Subscription() {
  end();
}

void Subscription::end() noexcept {
  const auto gate = std::exchange(gate_, nullptr);
  if (!gate) return;
  Parallel::instance().remove(event_, id_);
  gate->close();
}

}  // namespace divisi
