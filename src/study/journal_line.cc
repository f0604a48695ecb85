#include "study/journal_line.h"

#include "study/study_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace divisi::tune {
namespace {

constexpr std::array<std::pair<ChangeKind, std::string_view>, 11> kOps{{
    {ChangeKind::kWorker, "worker"},
    {ChangeKind::kBeat, "beat"},
    {ChangeKind::kLeave, "leave"},
    {ChangeKind::kSpace, "space"},
    {ChangeKind::kAdd, "add"},
    {ChangeKind::kAsk, "ask"},
    {ChangeKind::kStart, "start"},
    {ChangeKind::kTry, "try"},
    {ChangeKind::kReport, "report"},
    {ChangeKind::kTell, "tell"},
    {ChangeKind::kGiveBack, "give_back"},
}};

constexpr std::array<std::string_view, 4> kStates{"ok", "fail", "skip", "pruned"};

// Under which names a change's numbers and texts stand in its line; "": it has none.
struct Fields {
  std::string_view numbers;
  std::string_view text_a;
  std::string_view text_b;
};

Fields fields_of(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::kWorker: return {"", "identity", ""};
    case ChangeKind::kSpace: return {"", "space", ""};
    case ChangeKind::kAdd:
    case ChangeKind::kAsk: return {"raw", "config", ""};
    case ChangeKind::kReport: return {"report", "", ""};
    case ChangeKind::kTell: return {"values", "returned", "metrics"};
    default: return {};
  }
}

Status put_text(json::Value& to, std::string_view key, const std::string& text) {
  if (key.empty() || text.empty()) return {};
  Result<json::Value> value = json_of(text, fmt::format("the {} of a trial", key));
  if (!value) return value.error();
  to[key] = *std::move(value);
  return {};
}

Result<std::string> change_text(std::uint64_t study, const Change& change) {
  json::Value line = json::Object{};
  const auto* const op = std::find_if(kOps.begin(), kOps.end(),
                                      [&](const auto& one) { return one.first == change.kind; });
  line["op"] = op->second;
  line["study"] = static_cast<std::int64_t>(study);
  if (change.trial != 0) line["trial"] = static_cast<std::int64_t>(change.trial);
  if (change.worker != 0) line["worker"] = static_cast<std::int64_t>(change.worker);
  line["time"] = number_to_json(change.time);
  const Fields fields = fields_of(change.kind);
  if (change.kind == ChangeKind::kTell) {
    line["state"] = kStates[static_cast<std::size_t>(change.state)];
  }
  if (change.count != 0) line["tries"] = change.count;
  if (!fields.numbers.empty()) {
    json::Array numbers;
    for (const double one : change.numbers) numbers.push_back(number_to_json(one));
    line[fields.numbers] = std::move(numbers);
  }
  if (change.violation != 0) line["violation"] = number_to_json(change.violation);
  if (const Status put = put_text(line, fields.text_a, change.text_a); !put.ok()) {
    return failure(put);
  }
  if (const Status put = put_text(line, fields.text_b, change.text_b); !put.ok()) {
    return failure(put);
  }
  if (!change.text_c.empty()) line["error"] = change.text_c;
  return json::print(line) + "\n";
}

Result<std::uint64_t> id_at(const json::Value& line, std::string_view key, bool needed) {
  const json::Value* found = line.find(key);
  if (found == nullptr && !needed) return 0;
  const std::int64_t* id = found == nullptr ? nullptr : found->as_int();
  if (id == nullptr || *id < 1)
    return failure(Code::kInvalid, "\"{}\" is not a number from 1", key);
  return static_cast<std::uint64_t>(*id);
}

Result<double> number_at(const json::Value& line, std::string_view key) {
  const json::Value* found = line.find(key);
  if (found == nullptr) return 0.0;
  return number_from_json(*found);
}

std::string taken_text(const json::Value& line, std::string_view key) {
  const json::Value* found = key.empty() ? nullptr : line.find(key);
  return found == nullptr ? std::string() : json::print(*found);
}

Status take_numbers(const json::Value& line, std::string_view key, std::vector<double>& to) {
  const json::Value* found = key.empty() ? nullptr : line.find(key);
  if (found == nullptr) return {};
  if (found->as_array() == nullptr) {
    return make_status(Code::kInvalid, "\"{}\" is not a list", key);
  }
  for (const json::Value& one : *found->as_array()) {
    const Result<double> number = number_from_json(one);
    if (!number) return number.error();
    to.push_back(*number);
  }
  return {};
}

Status take_state(const json::Value& line, TrialState& state) {
  const auto* const found = std::find(kStates.begin(), kStates.end(), line.string_at({"state"}));
  if (found == kStates.end()) {
    return make_status(Code::kInvalid, "\"state\" is none of ok, fail, skip and pruned");
  }
  state = static_cast<TrialState>(found - kStates.begin());
  return {};
}

Result<JournalLine> parse_change(const json::Value& line, ChangeKind kind) {
  JournalChange read{.study = 0, .change = {.kind = kind}};
  Change& change = read.change;
  DIVISI_TRY(read.study, id_at(line, "study", true));
  DIVISI_TRY(change.trial, id_at(line, "trial", false));
  DIVISI_TRY(change.worker, id_at(line, "worker", false));
  DIVISI_TRY(change.time, number_at(line, "time"));
  DIVISI_TRY(change.violation, number_at(line, "violation"));
  const std::int64_t tries = line.int_at({"tries"}).value_or(0);
  change.count = static_cast<int>(std::clamp<std::int64_t>(tries, 0, 1'000'000'000));
  const Fields fields = fields_of(kind);
  if (Status taken = take_numbers(line, fields.numbers, change.numbers); !taken.ok()) {
    return failure(std::move(taken));
  }
  if (kind == ChangeKind::kTell) {
    if (Status taken = take_state(line, change.state); !taken.ok()) {
      return failure(std::move(taken));
    }
  }
  change.text_a = taken_text(line, fields.text_a);
  change.text_b = taken_text(line, fields.text_b);
  change.text_c = line.string_at({"error"});
  return read;
}

Result<JournalLine> parse_entry(const json::Value& line) {
  Log::Entry entry;
  DIVISI_TRY(entry.id, id_at(line, "study", true));
  const std::string_view name = line.string_at({"name"});
  const json::Value* spec = line.find("spec");
  if (name.empty() || spec == nullptr) {
    return failure(Code::kInvalid, "a study has no name or no description");
  }
  entry.spec = spec_from_json(std::string(name), *spec);
  return entry;
}

}  // namespace

Result<std::string> journal_text(const JournalLine& line) {
  if (const auto* header = std::get_if<JournalHeader>(&line)) {
    return fmt::format(R"({{"op":"journal","of":"divisi studies","version":{}}})"
                       "\n",
                       header->version);
  }
  if (const auto* removal = std::get_if<JournalRemoval>(&line)) {
    return fmt::format(R"({{"op":"remove","study":{}}})"
                       "\n",
                       removal->study);
  }
  if (const auto* entry = std::get_if<Log::Entry>(&line)) {
    json::Value value = json::Object{{"op", "study"},
                                     {"study", static_cast<std::int64_t>(entry->id)},
                                     {"name", entry->spec.name}};
    DIVISI_TRY(value["spec"], spec_to_json(entry->spec));
    return json::print(value) + "\n";
  }
  const auto& change = std::get<JournalChange>(line);
  return change_text(change.study, change.change);
}

Result<JournalLine> parse_journal_line(std::string_view text) {
  DIVISI_TRY(const json::Value line, json::parse(text, {.max_bytes = std::size_t{1} << 30U}));
  const std::string_view op = line.string_at({"op"});
  if (op == "journal") {
    const std::int64_t version = line.int_at({"version"}).value_or(0);
    return JournalHeader{.version =
                             static_cast<int>(std::clamp<std::int64_t>(version, 0, 1 << 20))};
  }
  if (op == "study") return parse_entry(line);
  if (op == "remove") {
    DIVISI_TRY(const std::uint64_t study, id_at(line, "study", true));
    return JournalRemoval{.study = study};
  }
  for (const auto& [kind, name] : kOps) {
    if (name == op) return parse_change(line, kind);
  }
  return failure(Code::kInvalid, "\"op\" is {}, which is unknown", json::print(json::Value(op)));
}

bool is_about_studies(std::string_view text) {
  return text.starts_with(R"({"op":"journal")") || text.starts_with(R"({"op":"study")") ||
         text.starts_with(R"({"op":"remove")");
}

}  // namespace divisi::tune
