// Freer: the deleter of a unique_ptr for what a C library frees with a function of its own.
//
//   using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
#pragma once

namespace divisi::io {

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* object) const noexcept {
    kFree(object);
  }
};

}  // namespace divisi::io
