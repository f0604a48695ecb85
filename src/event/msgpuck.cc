// Debian's archive of msgpuck is not position-independent, so libdivisi.so compiles the library's
// own bodies from its header, here and nowhere else.
#define MP_SOURCE 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#include <msgpuck.h>
#pragma GCC diagnostic pop
