// Where the figures of a run go: TensorBoard event files, lines of JSON, the console, and from any
// node of a job to the one that writes.
//
//   auto writer = divisi::DistributedWriter::get_instance("exp/log");
//   writer->plugin(task.router(), router.node_id() == 0);        // node 0 writes
//   writer->add_scalar("train/loss", 0.25, ctx.train_iter);      // on any node
//
// Threads: every member of these classes may be called from any thread.
//
// Errors: a file that cannot be made or written is an Error with its path and the text of errno,
// thrown by the call that needed it. What was written before stays readable.
#pragma once

#include "divisi/event.h"
#include "divisi/export.h"
#include "divisi/parallel.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace divisi {

// Somewhere that figures go. `step` is what the figure is drawn over, usually train_iter or
// env_step.
class DIVISI_API MetricLogger {
 public:
  virtual ~MetricLogger();
  MetricLogger(const MetricLogger&) = delete;
  MetricLogger& operator=(const MetricLogger&) = delete;

  // One number of a curve.
  virtual void add_scalar(std::string_view tag, double value, std::int64_t step) = 0;
  // A text, which TensorBoard shows as Markdown.
  virtual void add_text(std::string_view tag, std::string_view text, std::int64_t step) = 0;
  // How the values are spread. Those that are not finite are left out.
  virtual void add_histogram(std::string_view tag, std::span<const double> values,
                             std::int64_t step) = 0;
  // To the disk as far as the system goes. Nothing is ever held back, so this is for power cuts.
  virtual void flush() {}
  // Nothing comes afterwards: what does is ignored. The destructor does it too.
  virtual void close() {}

 protected:
  MetricLogger() = default;
};

// Event files as TensorBoard reads them: events.out.tfevents.<time>.<host>.<pid> in `dir`. The
// file and its folder are made by the first figure. Each figure is one write: whoever looks finds
// whole records.
class DIVISI_API TensorBoardWriter final : public MetricLogger {
 public:
  // Makes nothing yet.
  explicit TensorBoardWriter(std::string dir);
  ~TensorBoardWriter() override;

  void add_scalar(std::string_view tag, double value, std::int64_t step) override;
  void add_text(std::string_view tag, std::string_view text, std::int64_t step) override;
  void add_histogram(std::string_view tag, std::span<const double> values,
                     std::int64_t step) override;
  void flush() override;
  void close() override;

  // Of the file; empty before the first figure.
  std::string path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One JSON object a line, written as a whole: {"time": 1700000000.5, "tag": "loss", "step": 3,
// "value": 0.25}. A text has "text" instead of "value", a histogram "histogram" with count, min,
// max, mean and standard deviation. NaN and the infinities are the strings "NaN", "Infinity" and
// "-Infinity". Appends to a file that is there; its folder is made.
class DIVISI_API JsonLinesLogger final : public MetricLogger {
 public:
  // Opens the file.
  explicit JsonLinesLogger(std::string path);
  ~JsonLinesLogger() override;

  void add_scalar(std::string_view tag, double value, std::int64_t step) override;
  void add_text(std::string_view tag, std::string_view text, std::int64_t step) override;
  void add_histogram(std::string_view tag, std::span<const double> values,
                     std::int64_t step) override;
  void flush() override;
  void close() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A line on standard output for each figure: "step 3  loss 0.25".
class DIVISI_API ConsoleLogger final : public MetricLogger {
 public:
  ConsoleLogger();
  ~ConsoleLogger() override;

  void add_scalar(std::string_view tag, double value, std::int64_t step) override;
  void add_text(std::string_view tag, std::string_view text, std::int64_t step) override;
  void add_histogram(std::string_view tag, std::span<const double> values,
                     std::int64_t step) override;
};

// The writer of a job. Before plugin(), and without a job, it writes to event files in its folder.
// Once plugged into an active router only the writer node does; each call on another node
// becomes the router's event `distributed_writer` with the method's name and arguments, as in
// Python, so nodes of both languages write into one file.
//
// The writer of a job takes add_scalar, add_scalars (each as <main tag>/<key>), add_text and
// add_histogram of others; what it does not know (images and the like) it warns of once. A message
// that cannot be read is an error of the router's listeners. What arrives after its close, or
// after the end of its main, is lost: end the writer's node last, or flush() on the others.
class DIVISI_API DistributedWriter final : public MetricLogger {
 public:
  // Makes nothing yet.
  explicit DistributedWriter(std::string dir);
  ~DistributedWriter() override;

  // Makes one; the first of a process is also its root.
  static std::shared_ptr<DistributedWriter> get_instance(const std::string& dir);
  // The root. Throws UsageError when there is none.
  static std::shared_ptr<DistributedWriter> get_instance();

  // From now on for the whole job, if the router is active. One node says is_writer.
  DistributedWriter& plugin(Parallel& router, bool is_writer);
  // What is written here goes to `logger` as well.
  DistributedWriter& also(std::shared_ptr<MetricLogger> logger);

  void add_scalar(std::string_view tag, double value, std::int64_t step) override;
  void add_text(std::string_view tag, std::string_view text, std::int64_t step) override;
  void add_histogram(std::string_view tag, std::span<const double> values,
                     std::int64_t step) override;
  // Several scalars at once, as <main tag>/<key>.
  void add_scalars(std::string_view main_tag, const std::map<std::string, double>& values,
                   std::int64_t step);
  // On a node that does not write: waits until the writer has received everything, at most 30 s.
  void flush() override;
  void close() override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace divisi
