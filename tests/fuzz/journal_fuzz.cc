// Any bytes as a journal of studies: read or refused, never a crash; a line that is read means the
// same when it is written and read again.
#include "study/journal_line.h"
#include "study/records.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divisi::tune;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::map<std::uint64_t, Records> studies;
  std::uint64_t number = 0;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    auto line = parse_journal_line(text);
    if (!line) {
      if (line.error().message().empty()) std::abort();
      continue;
    }
    const auto written = journal_text(*line);
    if (!written) continue;  // a text inside of it that is no JSON
    const auto again =
        parse_journal_line(std::string_view(*written).substr(0, written->size() - 1));
    if (!again || again->index() != line->index() ||
        journal_text(*again).value_or("") != *written) {
      std::abort();
    }
    auto* one = std::get_if<JournalChange>(&*line);
    if (one == nullptr) continue;
    one->change.number = ++number;
    Records& records = studies.try_emplace(one->study, std::string()).first->second;
    const std::size_t before = records.trials().size();
    const bool fits = records.check(one->change).ok();
    if (records.apply(one->change).ok() != fits) std::abort();
    if (!fits && records.trials().size() != before) std::abort();
  }
  return 0;
}
