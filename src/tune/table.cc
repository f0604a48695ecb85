// Tables of text: the rank list, and the states of trials.
#include "base/status.h"
#include "divisi/sampler.h"

#include <algorithm>
#include <string_view>

namespace divisi::tune {
namespace {

struct Column {
  bool numeric = true;       // every cell is a number or empty
  std::size_t fraction = 0;  // of numbers: the longest part from the decimal point on
  std::size_t width = 0;     // of the content
};

std::string cell_text(const Cell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *whole);
  if (const auto* number = std::get_if<double>(&cell)) return fmt::format("{:g}", *number);
  if (const auto* text = std::get_if<std::string>(&cell)) {
    // A line break would tear the frame.
    std::string one_line = *text;
    std::replace_if(
        one_line.begin(), one_line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return one_line;
  }
  return {};
}

// Characters of UTF-8 text, which is what a terminal shows.
std::size_t shown_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

std::size_t fraction_of(std::string_view number) {
  const std::size_t point = number.find_first_of(".e");
  return point == std::string_view::npos ? 0 : number.size() - point;
}

using Rows = std::vector<std::vector<std::string>>;

// Aligns the decimal points by blanks on the right, and finds the widths.
std::vector<Column> lay_out(const std::vector<std::string>& headers,
                            const std::vector<std::vector<Cell>>& cells, Rows& texts) {
  std::vector<Column> columns(headers.size());
  for (const std::vector<Cell>& row : cells) {
    std::vector<std::string>& line = texts.emplace_back();
    for (std::size_t i = 0; i < headers.size(); ++i) {
      line.push_back(cell_text(row.at(i)));
      if (std::holds_alternative<std::string>(row[i])) columns[i].numeric = false;
      columns[i].fraction = std::max(columns[i].fraction, fraction_of(line.back()));
    }
  }
  for (std::size_t i = 0; i < headers.size(); ++i) {
    Column& column = columns[i];
    if (texts.empty()) column.numeric = false;
    column.width = shown_width(headers[i]) + 2;
    for (std::vector<std::string>& line : texts) {
      if (column.numeric && !line[i].empty()) {
        line[i].append(column.fraction - fraction_of(line[i]), ' ');
      }
      column.width = std::max(column.width, shown_width(line[i]));
    }
  }
  return columns;
}

std::string frame_line(const std::vector<Column>& columns, char fill, char corner, char end) {
  std::string line(1, end);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) line += corner;
    line.append(columns[i].width + 2, fill);
  }
  return line + end;
}

std::string text_line(const std::vector<Column>& columns, const std::vector<std::string>& texts) {
  std::string line = "|";
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string blanks(columns[i].width - shown_width(texts[i]), ' ');
    line += ' ';
    line += columns[i].numeric ? blanks + texts[i] : texts[i] + blanks;
    line += " |";
  }
  return line;
}

}  // namespace

std::string format_table(const std::vector<std::string>& headers,
                         const std::vector<std::vector<Cell>>& rows, TableStyle style) {
  for (const std::vector<Cell>& row : rows) {
    if (row.size() != headers.size()) {
      throw UsageError(fmt::format("a row of a table has {} cells and there are {} headers",
                                   row.size(), headers.size()));
    }
  }
  Rows texts;
  const std::vector<Column> columns = lay_out(headers, rows, texts);
  const std::string border = frame_line(columns, '-', '+', '+');
  const bool grid = style == TableStyle::kGrid;
  std::string table = border + '\n' + text_line(columns, headers) + '\n';
  table += grid ? frame_line(columns, '=', '+', '+') : frame_line(columns, '-', '+', '|');
  for (const std::vector<std::string>& line : texts) {
    table += '\n' + text_line(columns, line);
    if (grid) table += '\n' + border;
  }
  if (!grid) table += '\n' + border;
  return table;
}

}  // namespace divisi::tune
