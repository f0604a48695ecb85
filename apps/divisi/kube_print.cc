#include "kube_print.h"

#include "json/yaml.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <vector>

namespace divisi::apps {
namespace {

using Row = std::vector<std::string>;

std::string cell_text(const json::Value& cell) {
  if (cell.is_null()) return "<none>";
  return cell.as_string() != nullptr ? *cell.as_string() : json::print(cell);
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 3, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string name_of(const json::Value& object) {
  std::string kind(object.string_at({"kind"}));
  std::ranges::transform(kind, kind.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view name = object.string_at({"metadata", "name"});
  return kind.empty() ? std::string(name) : kind + "/" + std::string(name);
}

}  // namespace

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string print_table(const json::Value& table, bool wide, bool with_space) {
  const json::Value* columns = table.find("columnDefinitions");
  const json::Value* rows = table.find("rows");
  if (columns == nullptr || columns->as_array() == nullptr || rows == nullptr) {
    return name_of(table) + "\n";
  }
  std::vector<std::size_t> shown;
  std::vector<Row> text(1);
  if (with_space) text[0].emplace_back("NAMESPACE");
  for (std::size_t i = 0; i < columns->as_array()->size(); ++i) {
    const json::Value& column = (*columns->as_array())[i];
    if (!wide && column.int_at({"priority"}).value_or(0) > 0) continue;
    shown.push_back(i);
    text[0].push_back(upper(column.string_at({"name"})));
  }
  if (rows->as_array() != nullptr) {
    for (const json::Value& row : *rows->as_array()) {
      Row& line = text.emplace_back();
      if (with_space) line.emplace_back(row.string_at({"object", "metadata", "namespace"}));
      const json::Value* cells = row.find("cells");
      for (const std::size_t i : shown) {
        const bool there =
            cells != nullptr && cells->as_array() != nullptr && i < cells->as_array()->size();
        line.push_back(there ? cell_text((*cells->as_array())[i]) : "");
      }
    }
  }
  return text.size() == 1 ? "No resources found\n" : aligned(text);
}

Result<std::string> print_objects(const json::Value& value, std::string_view format) {
  if (format == "json") return json::print(value, 4) + "\n";
  if (format == "yaml") return json::print_yaml(value);
  if (format != "name") {
    return failure(Code::kInvalid, "-o {}: the forms are yaml, json, name and wide", format);
  }
  const json::Value* items = value.find("items");
  if (items == nullptr || items->as_array() == nullptr) return name_of(value) + "\n";
  std::string text;
  for (const json::Value& item : *items->as_array()) text += name_of(item) + "\n";
  return text;
}

}  // namespace divisi::apps
