// For tests/pickle: `pickle_tool load` turns a pickle on standard input into JSON, `pickle_tool
// save PROTOCOL` the other way. A refusal is one line on standard error and exit code 2.
#include "pickle/reader.h"
#include "pickle/writer.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

namespace {

divisi::Result<std::string> convert(const std::string& input, std::string_view how, int protocol) {
  if (how == "load") {
    DIVISI_TRY(const divisi::pickle::Value value, divisi::pickle::load(input));
    DIVISI_TRY(const divisi::json::Value document, divisi::pickle::to_json(value));
    return divisi::json::print(document);
  }
  DIVISI_TRY(const divisi::json::Value document, divisi::json::parse(input));
  return divisi::pickle::save(document, protocol);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  const auto output =
      convert(input, argc > 1 ? argv[1] : "load", argc > 2 ? std::atoi(argv[2]) : 2);
  if (!output) {
    std::fprintf(stderr, "%s\n", output.error().message().c_str());
    return 2;
  }
  std::fwrite(output->data(), 1, output->size(), stdout);
  return 0;
}
