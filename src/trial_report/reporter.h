// Reporter: posts what a trial leaves in its files to di-server, which keeps it with the job.
//
//   Reporter reporter(files, post, say);
//   while (the program runs) { reporter.look(); reporter.send(); }
//   reporter.look_at_the_end();
//   while (!reporter.send() && there is time) ...;
//
// One thread. `post` waits for the answer; `say` gets lines for a person, each trouble once. What
// could not be posted is kept and tried again, the newest reports of it; what di-server refuses is
// dropped. A repeated post changes nothing there.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "json/value.h"
#include "trial_report/trial_files.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::trial_report {

// What di-server takes (src/server/trial_posts.h): of a result, of a report, and of a figure.
inline constexpr std::size_t kMaxPostedResult = std::size_t{32} << 10;
inline constexpr std::size_t kMaxFigures = 64;
inline constexpr std::size_t kMaxFigureName = 128;

class Reporter {
 public:
  using Post = std::function<Result<http::Response>(const std::string& body)>;
  using Say = std::function<void(const std::string& line)>;

  Reporter(TrialFiles& files, Post post, Say say)
      : files_(files), post_(std::move(post)), say_(std::move(say)) {}

  // What is new in the files. A result counts when it did not change between two looks: its writer
  // may be at it.
  void look();
  void look_at_the_end();

  // Posts what is unsent. True: nothing is left, or di-server will not take it.
  bool send();
  std::string unsent() const;  // for a person; empty: nothing

 private:
  void take_line(std::string_view line);
  void take_figures(std::int64_t step, const json::Object& figures);
  void take_result(FoundResult found);
  void take_trouble(std::string text);
  std::optional<json::Value> next_body() const;
  void drop_reports_of(const json::Value& body);
  void posted(const json::Value& body);
  bool refused(const json::Value& body, const http::Response& answer);
  void warn(const std::string& line);

  TrialFiles& files_;
  const Post post_;
  const Say say_;
  std::map<std::int64_t, json::Value> reports_;  // unsent
  std::optional<FoundResult> last_seen_;
  std::string sent_or_queued_;         // bytes of the last result that was taken
  std::optional<FoundResult> result_;  // unsent
  std::string trouble_;                // unsent
  std::string last_trouble_;           // that was taken: it is posted once
  bool result_alone_ = false;          // the reports that went with it were refused
  int refusals_ = 0;                   // in a row: not allowed, or no such job
  bool given_up_ = false;
  std::map<std::string, bool> warned_;
};

// {"step": 3, "values": {"loss": 0.5}} as {"loss": 0.5}, with its step; what is not finite is null,
// also as Python writes it (NaN). Nothing: it is no report.
std::optional<std::pair<std::int64_t, json::Value>> parse_report_line(std::string_view line);

}  // namespace divisi::trial_report
