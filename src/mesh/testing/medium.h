// Medium: one way for nodes to reach each other. The conformance tests run over each of them; a new
// one joins by being listed in all_media().
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace divisi::mesh::testing {

struct Medium {
  const char* name;
  // An address to listen on that nobody uses.
  std::string (*fresh_address)();

  friend std::ostream& operator<<(std::ostream& out, const Medium& medium) {
    return out << medium.name;
  }
};

std::vector<Medium> all_media();

}  // namespace divisi::mesh::testing
