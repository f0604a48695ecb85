#include "ding/end_signal.h"

#include <csignal>
#include <sys/signalfd.h>
#include <unistd.h>

namespace divisi::ding {

EndSignal::EndSignal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  DIVISI_CHECK(descriptor_, "signalfd works on every kernel that runs this program");
}

int EndSignal::take() const {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace divisi::ding
