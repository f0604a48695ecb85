#include "runtime/model_receiver.h"

#include "base/log.h"
#include "divisi/parallel.h"
#include "runtime/exchange_gate.h"
#include "runtime/model_sender.h"

#include <utility>

namespace divisi::runtime {

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool ModelOrder::take(const ModelMessage& message) {
  const bool later = message.time > time_;
  bool news = !any_;
  if (any_ && message.sender == sender_) {
    news = message.id > id_ || (message.id == id_ && later) || (sender_.empty() && later);
  } else if (any_) {
    news = !replaced_.contains(message.sender);
    // Several senders may have no name: none of them is gone for good.
    if (news && !sender_.empty()) replaced_.insert(sender_);
  }
  if (!news) return false;
  any_ = true;
  id_ = message.id;
  time_ = message.time;
  sender_ = message.sender;
  return true;
}

ModelReceiver::ModelReceiver(Task& owner, Model model, ReceiverOptions options)
    : task_(owner),
      model_(std::move(model)),
      options_(std::move(options)),
      served_(options_.stale_toleration) {}

std::shared_ptr<ModelReceiver> ModelReceiver::create(Task& owner, Model model,
                                                     ReceiverOptions options) {
  std::shared_ptr<ModelReceiver> receiver(
      new ModelReceiver(owner, std::move(model), std::move(options)));
  receiver->listen(receiver);
  return receiver;
}

void ModelReceiver::listen(const std::shared_ptr<ModelReceiver>& self) {
  const std::weak_ptr<ModelReceiver> weak = self;
  const auto take = [weak](bool is_answer) {
    return [weak, is_answer](Value argument) {
      if (const auto receiver = weak.lock()) receiver->put(std::move(argument), is_answer);
    };
  };
  task_.on(options_.event, take(false));
  task_.on(answer_of(options_.event), take(true));
  task_.emit(request_of(options_.event), only_remote, Parallel::instance().node_id());
}

void ModelReceiver::put(Value argument, bool is_answer) {
  ModelMessage message = options_.parse(std::move(argument));
  if (message.id % options_.period != 0) return;
  const std::lock_guard lock(arrival_.mutex);
  // The answer to our question is what was sent before it: no news if that came here as well.
  if (is_answer && order_.any()) return;
  if (!order_.take(message)) return;
  newest_ = std::move(message);
  arrival_.tell();
}

// A model that is too old now will not get younger: it is dropped, and the next one waited for.
bool ModelReceiver::has_usable() {
  if (!newest_) return false;
  const std::chrono::duration<double> age(wall_clock() - newest_->time);
  const std::chrono::duration<double> tolerated = options_.delay_toleration;
  if (options_.delay_toleration == kForever || age < tolerated) return true;
  newest_.reset();
  return false;
}

void ModelReceiver::serve(const Context& ctx) {
  std::unique_lock lock(arrival_.mutex);
  if (!has_usable()) {
    if (served_ < options_.stale_toleration) {
      ++served_;
      if (options_.in_use) options_.in_use->serve();
      return;
    }
    if (ctx.total_step == 0 || !in_job(task_)) return;  // nobody could send one
    const auto woken =
        arrival_.wait(task_, lock, options_.timeout, [this] { return has_usable(); });
    if (woken == Arrival::Woken::kTimeout) {
      log::warning("no new model by the event {} within {:.0f} s: node {} goes on with the old one",
                   options_.event, std::chrono::duration<double>(options_.timeout).count(),
                   Parallel::instance().node_id());
    }
    if (woken != Arrival::Woken::kReady) {
      if (options_.in_use) options_.in_use->serve();
      return;
    }
  }
  const ModelMessage message = *std::exchange(newest_, std::nullopt);
  lock.unlock();
  model_.load(unpack_model(message.model));
  served_ = 1;
  if (options_.in_use) options_.in_use->begin(message.id, message.time);
}

}  // namespace divisi::runtime
