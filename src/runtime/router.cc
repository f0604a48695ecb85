// Apart from network.cc, so that a test may give the process a router of its own.
#include "runtime/router.h"

#include "runtime/network.h"

namespace divisi::runtime {

Router& router() {
  return Network::instance();
}

}  // namespace divisi::runtime
