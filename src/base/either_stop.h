// EitherStop: one stop token that stands for two.
#pragma once

#include <stop_token>

namespace divisi {

class EitherStop {
 public:
  EitherStop(const std::stop_token& one, const std::stop_token& other)
      : one_(one, Forward{both_}), other_(other, Forward{both_}) {}
  EitherStop(const EitherStop&) = delete;
  EitherStop& operator=(const EitherStop&) = delete;

  std::stop_token token() const noexcept { return both_.get_token(); }

 private:
  struct Forward {
    std::stop_source& to;
    void operator()() const noexcept { to.request_stop(); }
  };

  std::stop_source both_;
  std::stop_callback<Forward> one_;
  std::stop_callback<Forward> other_;
};

}  // namespace divisi
