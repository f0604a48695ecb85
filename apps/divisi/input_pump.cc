#include "input_pump.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace divisi::apps {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;  // what a pipe holds

io::PipePair must_make_pipe() {
  auto made = io::make_pipe();
  DIVISI_CHECK(made.has_value(), "a program that just began has descriptors left");
  return *std::move(made);
}

}  // namespace

InputPump::InputPump(int descriptor, std::function<void(std::string)> on_piece)
    : on_piece_(std::move(on_piece)),
      stop_(must_make_pipe()),
      thread_([this, descriptor] { run(descriptor); }) {}

InputPump::~InputPump() {
  stop();
}

void InputPump::stop() {
  if (!thread_.joinable()) return;
  stop_.write.reset();
  wanted_.release();
  thread_.join();
}

void InputPump::run(int descriptor) {
  while (true) {
    wanted_.acquire();
    auto piece = read_piece(descriptor);
    if (!piece) return;
    const bool last = piece->empty();
    on_piece_(*std::move(piece));
    if (last) return;
  }
}

std::optional<std::string> InputPump::read_piece(int descriptor) {
  std::string piece(kPiece, '\0');
  while (true) {
    std::array<pollfd, 2> ready{pollfd{stop_.read.get(), POLLIN, 0}, pollfd{descriptor, POLLIN, 0}};
    if (::poll(ready.data(), ready.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return std::string();
    }
    if (ready[0].revents != 0) return std::nullopt;
    if (ready[1].revents == 0) continue;
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    piece.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return piece;
  }
}

}  // namespace divisi::apps
