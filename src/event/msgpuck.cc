// Debian's archive of msgpuck is not position-independent, so libdivisi.so compiles the library's
// own bodies from its header, here and nowhere else.
#define MP_SOURCE 1  // NOLINT(readability-identifier-naming): the name that the header asks for
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#include <msgpuck.h>
#pragma GCC diagnostic pop
