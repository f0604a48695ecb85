// A job changes its size: who is new, who is gone for good. Everything here runs on the loop.
#include "base/deadline.h"
#include "base/log.h"
#include "mesh/dialer.h"
#include "mesh/node.h"

#include <algorithm>

namespace divisi::mesh {

void Node::welcome(const PeerPlace& place) {
  dismissed_.erase(place.node);
  if (!place.dial) return;
  const auto found = std::ranges::find_if(
      dialers_, [&](const auto& each) { return each->address == place.address; });
  const bool known = found != dialers_.end();
  const auto dialer = known ? *found : std::make_shared<Dialer>(place.address);
  dialer->listed = true;
  const bool moved = place.at.has_value() && place.at != dialer->at;
  dialer->at = place.at;
  dialer->by_name = !place.at.has_value();
  const auto link = dialer->link.lock();
  if (known && !dialer->unneeded && (!moved || (link && link->connection))) return;
  dialer->unneeded = false;
  dialer->pause = std::chrono::milliseconds(0);
  if (!known) {
    dialer->joined = true;  // main does not wait for those who come later
    dialers_.push_back(dialer);
  }
  log::debug("node {} has come: dialling {}", place.node, place.address.to_string());
  dial(dialer);
}

void Node::dismiss(const PeerPlace& place) {
  for (const auto& dialer : dialers_) {
    if (dialer->address != place.address) continue;
    dialer->unneeded = true;
    dialer->listed = false;
    dialer->pending.reset();
    dialer_joined(dialer);
  }
  LinkPtr link;
  {
    Lock lock(mutex_);
    if (const auto found = links_.find(place.node); found != links_.end()) link = found->second;
    if (!link) {  // nobody waits for it any more
      departed_.insert(place.node);
      open_relay(lock);
      changed_.notify_all();
    }
  }
  if (!link) return;
  if (link->connection) {
    dismissed_.insert(place.node);
  } else {
    retire(link, true);
  }
}

void Node::extend_join() {
  const Lock lock(mutex_);
  join_deadline_ = deadline_after(options_.join_timeout);
}

}  // namespace divisi::mesh
