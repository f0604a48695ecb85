// A package as a user writes it; entry_test.cc loads it.
#include "divisi/main.h"

namespace greeting {
int main() {
  return 17;
}
}  // namespace greeting
DIVISI_MAIN(greeting::main)

static int collector(std::vector<std::string> args) {
  return static_cast<int>(args.size());
}
DIVISI_MAIN(collector)
DIVISI_MAIN_AS("alias", collector)

static int outdated() {
  return 0;
}
static const divisi::detail::EntryRecord outdated_record{
    DIVISI_ABI_VERSION + 41, "outdated", __FILE__, __LINE__, nullptr, nullptr};
static const divisi::detail::EntryRegistrar outdated_registrar(&outdated_record);

extern "C" __attribute__((visibility("default"))) int plain_symbol(int argc, char** argv) {
  return argc == 2 && std::string(argv[0]) == "plain_symbol" ? std::stoi(argv[1]) : outdated() - 1;
}
