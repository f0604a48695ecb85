#include "ding/ding.h"
#include "io/process.h"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  divisi::io::open_standard_descriptors();
  try {
    return divisi::ding::ding_main("ding", {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ding: %s\n", error.what());
    return 1;
  }
}
