#include "server/first/batch.h"

#include <memory>
#include <utility>

namespace divisi::server::first {
namespace {

class Batch : public std::enable_shared_from_this<Batch> {
 public:
  Batch(std::size_t count, std::size_t width,
        std::function<void(std::size_t, std::function<void(Status)>)> work,
        std::function<void(Status)> done)
      : count_(count), width_(width), work_(std::move(work)), done_(std::move(done)) {}

  void pump() {
    if (std::exchange(pumping_, true)) return;
    while (next_ < count_ && running_ < width_ && failed_.ok()) {
      ++running_;
      work_(next_++,
            [self = shared_from_this()](Status status) { self->ended(std::move(status)); });
    }
    pumping_ = false;
    if (running_ > 0) return;
    if (const auto done = std::exchange(done_, nullptr)) done(failed_);
  }

 private:
  void ended(Status status) {
    --running_;
    if (failed_.ok()) failed_ = std::move(status);
    pump();
  }

  const std::size_t count_;
  const std::size_t width_;
  const std::function<void(std::size_t, std::function<void(Status)>)> work_;
  std::function<void(Status)> done_;
  std::size_t next_ = 0;
  std::size_t running_ = 0;
  bool pumping_ = false;
  Status failed_;
};

}  // namespace

void run_batch(std::size_t count, std::size_t width,
               std::function<void(std::size_t index, std::function<void(Status)> ended)> work,
               std::function<void(Status)> done) {
  std::make_shared<Batch>(count, width, std::move(work), std::move(done))->pump();
}

}  // namespace divisi::server::first
