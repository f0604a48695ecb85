// SIGTERM and SIGINT as a descriptor. Made before any thread, so that no other thread gets them.
#pragma once

#include "io/process.h"

namespace divisi::ding {

class EndSignal {
 public:
  EndSignal();  // blocks both for this thread and those it starts

  int descriptor() const noexcept { return descriptor_.get(); }  // readable when one has come
  int take() const;                                              // which one; 0: none

 private:
  io::Descriptor descriptor_;
};

}  // namespace divisi::ding
