// Entered by its C symbol, without the macro.
#include <cstdio>

extern "C" __attribute__((visibility("default"))) int no_function;
int no_function = 3;

extern "C" __attribute__((visibility("default"))) int run(int argc, char** argv) {
  std::printf("run(%d, %s)\n", argc, argv[0]);
  return 0;
}
