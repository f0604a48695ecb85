#include "launch/ditask.h"

int main(int argc, char** argv) {
  return divisi::launch::ditask_main(argc, argv);
}
