// while_alive: a callback that runs a member function, or nothing once its object is gone.
//
//   wire_->set_user(while_alive(weak_from_this(), &Connection::on_input), nullptr);
//
// The object stays alive while the function runs, also when that lets go of it.
#pragma once

#include <memory>
#include <utility>

namespace divisi::http {

template <class T>
auto while_alive(std::weak_ptr<T> weak, void (T::*function)()) {
  return [weak = std::move(weak), function] {
    if (const auto self = weak.lock()) (self.get()->*function)();
  };
}

}  // namespace divisi::http
