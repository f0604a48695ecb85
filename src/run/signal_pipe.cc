#include "run/signal_pipe.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

namespace divisi::run {
namespace {

constexpr std::initializer_list<int> kAsked = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};

std::atomic<int> signal_pipe_end{-1};
std::atomic<bool> signal_came{false};

void note_signal(int number) {
  const int before = errno;
  signal_came = true;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe_end.load(), &byte, 1);
  errno = before;
}

void set_handler(int number, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

SignalPipe::SignalPipe() {
  auto made = io::make_pipe();
  DIVISI_CHECK(made.has_value(), "a program that just began has descriptors left");
  pipe_ = *std::move(made);
  ::fcntl(pipe_.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(pipe_.write.get(), F_SETFL, O_NONBLOCK);
  signal_pipe_end = pipe_.write.get();
  signal_came = false;
  for (const int number : kAsked) set_handler(number, note_signal);
}

SignalPipe::~SignalPipe() {
  for (const int number : kAsked) set_handler(number, SIG_DFL);
  signal_pipe_end = -1;
}

bool SignalPipe::came() noexcept {
  return signal_came;
}

std::optional<int> SignalPipe::next() const {
  unsigned char byte = 0;
  const ssize_t got = ::read(pipe_.read.get(), &byte, 1);
  return got == 1 ? std::optional<int>(byte) : std::nullopt;
}

}  // namespace divisi::run
