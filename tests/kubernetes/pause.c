// pause: does nothing, until it is told to end. It is the init of a cell and of every pod, so it
// also reaps what is left to it: nobody else would.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  sigaction(SIGINT, &(struct sigaction){.sa_handler = end}, NULL);
  sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, NULL);
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = reap, .sa_flags = SA_NOCLDSTOP}, NULL);
  for (;;) pause();
}
