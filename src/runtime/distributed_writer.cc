#include "base/log.h"
#include "divisi/detail/front_end.h"
#include "divisi/error.h"
#include "divisi/packer.h"
#include "divisi/writer.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <set>
#include <utility>

namespace divisi {
namespace {

constexpr const char* kEvent = "distributed_writer";
constexpr auto kFlushTimeout = std::chrono::seconds(30);

template <class T>
void append_elements(const Tensor& tensor, std::vector<double>& numbers) {
  for (const T element : tensor.view<T>()) numbers.push_back(static_cast<double>(element));
}

// Numbers as a Python node sends them: plain, of NumPy, of PyTorch, or in lists of these.
void append_numbers(const Value& value, std::vector<double>& numbers) {
  if (const auto* const list = value.get_if<Value::Array>()) {
    for (const Value& each : *list) append_numbers(each, numbers);
    return;
  }
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr) {
    numbers.push_back(value.holds<bool>() ? double(value.as<bool>()) : value.as<double>());
    return;
  }
  switch (tensor->dtype) {
    case DType::kBool:
    case DType::kUint8: return append_elements<std::uint8_t>(*tensor, numbers);
    case DType::kInt8: return append_elements<std::int8_t>(*tensor, numbers);
    case DType::kInt16: return append_elements<std::int16_t>(*tensor, numbers);
    case DType::kUint16: return append_elements<std::uint16_t>(*tensor, numbers);
    case DType::kInt32: return append_elements<std::int32_t>(*tensor, numbers);
    case DType::kUint32: return append_elements<std::uint32_t>(*tensor, numbers);
    case DType::kInt64: return append_elements<std::int64_t>(*tensor, numbers);
    case DType::kUint64: return append_elements<std::uint64_t>(*tensor, numbers);
    case DType::kFloat32: return append_elements<float>(*tensor, numbers);
    case DType::kFloat64: return append_elements<double>(*tensor, numbers);
    default:
      throw PayloadError(
          fmt::format("distributed_writer: cannot draw {}", dtype_name(tensor->dtype)));
  }
}

double number_of(const Value& value) {
  std::vector<double> numbers;
  append_numbers(value, numbers);
  if (numbers.size() != 1) {
    throw PayloadError(
        fmt::format("distributed_writer: a scalar is one number, not {}", value.describe()));
  }
  return numbers.front();
}

// The arguments of a call after the method's name, by position or by keyword.
class Call {
 public:
  explicit Call(const Args& args) : args_(args) {}

  std::string method() const { return args_.at(0).as<std::string>(); }
  const Value& argument(std::size_t position, std::string_view name) const {
    if (args_.size() > position + 1) return args_.at(position + 1);
    return args_.kwarg(name);
  }
  // Python's default is None.
  std::int64_t step() const {
    constexpr std::size_t kPosition = 2;
    if (args_.size() <= kPosition + 1 && !args_.kwargs.contains("global_step")) return 0;
    const Value& step = argument(kPosition, "global_step");
    return step.is_nil() ? 0 : static_cast<std::int64_t>(number_of(step));
  }

 private:
  const Args& args_;
};

Tensor tensor_of(std::span<const double> values) {
  return Tensor::copy_of<double>({std::ssize(values)}, values);
}

}  // namespace

struct DistributedWriter::State {
  explicit State(std::string dir) : files(std::move(dir)) {}

  TensorBoardWriter files;

  std::mutex mutex;
  // Guarded by mutex.
  std::vector<std::shared_ptr<MetricLogger>> others;
  Parallel* router = nullptr;  // of the job it was plugged into
  bool is_writer = true;
  std::optional<ListenerId> listener;
  std::set<std::string> unknown;  // methods that were warned about

  // Null: it is written here.
  Parallel* remote() {
    const std::lock_guard lock(mutex);
    return is_writer || router == nullptr || !router->is_active() ? nullptr : router;
  }

  template <class Write>
  void each(const Write& write) {
    write(static_cast<MetricLogger&>(files));
    std::vector<std::shared_ptr<MetricLogger>> more;
    {
      const std::lock_guard lock(mutex);
      more = others;
    }
    for (const auto& logger : more) write(*logger);
  }

  void add_scalar(std::string_view tag, double value, std::int64_t step) {
    each([&](MetricLogger& logger) { logger.add_scalar(tag, value, step); });
  }

  // A call of another node.
  void take(const Args& args) {
    const Call call(args);
    const std::string method = call.method();
    if (method == "add_scalar") {
      add_scalar(call.argument(0, "tag").as<std::string>(),
                 number_of(call.argument(1, "scalar_value")), call.step());
    } else if (method == "add_scalars") {
      const auto main_tag = call.argument(0, "main_tag").as<std::string>();
      const Value& scalars = call.argument(1, "tag_scalar_dict");
      for (const auto& [key, value] : scalars.as<std::map<std::string, Value>>()) {
        add_scalar(fmt::format("{}/{}", main_tag, key), number_of(value), call.step());
      }
    } else if (method == "add_text") {
      const auto tag = call.argument(0, "tag").as<std::string>();
      const auto text = call.argument(1, "text_string").as<std::string>();
      each([&](MetricLogger& logger) { logger.add_text(tag, text, call.step()); });
    } else if (method == "add_histogram") {
      const auto tag = call.argument(0, "tag").as<std::string>();
      std::vector<double> values;
      append_numbers(call.argument(1, "values"), values);
      each([&](MetricLogger& logger) { logger.add_histogram(tag, values, call.step()); });
    } else {
      const std::lock_guard lock(mutex);
      if (unknown.insert(method).second) {
        log::warning("distributed_writer: {} is not supported here, its calls are dropped",
                     log::printable(method));
      }
    }
  }
};

namespace {

std::mutex root_mutex;
std::shared_ptr<DistributedWriter>& root() {
  static std::shared_ptr<DistributedWriter> writer;
  return writer;
}

}  // namespace

DistributedWriter::DistributedWriter(std::string dir)
    : state_(std::make_shared<State>(std::move(dir))) {}

DistributedWriter::~DistributedWriter() {
  if (state_->listener) {
    detail::FrontEnd::forget(Parallel::instance(), kEvent, *state_->listener);
  }
}

std::shared_ptr<DistributedWriter> DistributedWriter::get_instance(const std::string& dir) {
  auto made = std::make_shared<DistributedWriter>(dir);
  const std::lock_guard lock(root_mutex);
  if (root() == nullptr) root() = made;
  return made;
}

std::shared_ptr<DistributedWriter> DistributedWriter::get_instance() {
  const std::lock_guard lock(root_mutex);
  if (root() == nullptr) {
    throw UsageError("there is no DistributedWriter yet: the first get_instance names its folder");
  }
  return root();
}

DistributedWriter& DistributedWriter::plugin(Parallel& router, bool is_writer) {
  if (!router.is_active()) return *this;
  const std::lock_guard lock(state_->mutex);
  if (state_->listener) {
    detail::FrontEnd::forget(router, kEvent, *std::exchange(state_->listener, std::nullopt));
  }
  state_->router = &router;
  state_->is_writer = is_writer;
  if (is_writer) {
    auto listener = detail::make_listener([weak = std::weak_ptr(state_)](const Args& args) {
      if (const auto state = weak.lock()) state->take(args);
    });
    state_->listener = detail::FrontEnd::listen(router, kEvent, std::move(listener), false);
  }
  return *this;
}

DistributedWriter& DistributedWriter::also(std::shared_ptr<MetricLogger> logger) {
  const std::lock_guard lock(state_->mutex);
  state_->others.push_back(std::move(logger));
  return *this;
}

void DistributedWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  if (Parallel* const router = state_->remote()) {
    router->emit(kEvent, "add_scalar", tag, value, step);
  } else {
    state_->add_scalar(tag, value, step);
  }
}

void DistributedWriter::add_scalars(std::string_view main_tag,
                                    const std::map<std::string, double>& values,
                                    std::int64_t step) {
  for (const auto& [key, value] : values) {
    add_scalar(fmt::format("{}/{}", main_tag, key), value, step);
  }
}

void DistributedWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  if (Parallel* const router = state_->remote()) {
    router->emit(kEvent, "add_text", tag, text, step);
  } else {
    state_->each([&](MetricLogger& logger) { logger.add_text(tag, text, step); });
  }
}

void DistributedWriter::add_histogram(std::string_view tag, std::span<const double> values,
                                      std::int64_t step) {
  if (Parallel* const router = state_->remote()) {
    router->emit(kEvent, "add_histogram", tag, tensor_of(values), step);
  } else {
    state_->each([&](MetricLogger& logger) { logger.add_histogram(tag, values, step); });
  }
}

void DistributedWriter::flush() {
  if (Parallel* const router = state_->remote()) {
    if (!router->flush(kFlushTimeout)) {
      log::warning("distributed_writer: the writer has not received everything yet");
    }
    return;
  }
  state_->each([](MetricLogger& logger) { logger.flush(); });
}

void DistributedWriter::close() {
  state_->each([](MetricLogger& logger) { logger.close(); });
}

}  // namespace divisi
