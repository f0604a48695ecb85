// The package of the guides' command lines: tells which copy of it was entered.
#include "divisi/main.h"

#include <cstdio>

namespace my_module {

int main() {
  std::printf("entered my_module.main of the " MY_MODULE_COPY " copy\n");
  return 0;
}

}  // namespace my_module
DIVISI_MAIN(my_module::main)
