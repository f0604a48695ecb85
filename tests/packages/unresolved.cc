// Calls a function that nothing provides.
#include "divisi/main.h"

extern "C" int a_function_that_does_not_exist();

namespace {
int start() {
  return a_function_that_does_not_exist();
}
}  // namespace
DIVISI_MAIN(start)
