// As compiled against the headers of another version.
#include "divisi/export.h"

#undef DIVISI_ABI_VERSION
#define DIVISI_ABI_VERSION 999

#include "divisi/main.h"

namespace {
int start() {
  return 0;
}
}  // namespace
DIVISI_MAIN(start)
