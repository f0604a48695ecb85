#include "divisi/payload.h"

#include "base/status.h"

#include <cstdlib>
#include <cxxabi.h>
#include <utility>

namespace divisi {

namespace {

bool lies_in(std::span<const std::byte> part, const Buffer& whole) {
  return !whole.empty() && part.data() >= whole.data() &&
         part.data() + part.size() <= whole.data() + whole.size();
}

}  // namespace

Payload Payload::copy_of(const PayloadView& view) {
  Payload payload{view.codec, view.has_kwargs, {}, {view.buffers.begin(), view.buffers.end()}};
  if (lies_in(view.body, view.owner)) {
    const auto offset = static_cast<std::size_t>(view.body.data() - view.owner.data());
    payload.body = view.owner.slice(offset, view.body.size());
  } else {
    payload.body = Buffer::copy_of(view.body);
  }
  return payload;
}

// What a PackScratch left behind for the next one of the thread.
struct PackScratch::Spare {
  // Initial-exec: a plain load, also inside a shared library.
  static thread_local constinit Memory* memory __attribute__((tls_model("initial-exec")));

  static Memory* make() {
    struct FreeAtExit {
      ~FreeAtExit() { delete std::exchange(memory, nullptr); }
    };
    static thread_local const FreeAtExit free_at_exit;
    return new Memory;
  }
};

thread_local constinit PackScratch::Memory* PackScratch::Spare::memory = nullptr;

PackScratch::PackScratch() : memory_(std::exchange(Spare::memory, nullptr)) {
  if (memory_ == nullptr) [[unlikely]]
    memory_ = Spare::make();
}

PackScratch::~PackScratch() {
  memory_->packer.clear();
  memory_->view.owner = Buffer();
  if (Spare::memory != nullptr) delete Spare::memory;
  Spare::memory = memory_;
}

const PayloadView& pack_args(PackScratch& scratch, const Args& args) {
  PayloadView& view = scratch.view();
  view = {};
  if (args.values.size() == 1 && args.kwargs.empty() && args.values.front().holds<Buffer>()) {
    view.codec = Codec::kRaw;
    view.owner = *args.values.front().get_if<Buffer>();
    view.body = view.owner.bytes();
    return view;
  }
  Packer& packer = scratch.packer();
  packer.clear();
  packer.array(args.values.size() + (args.kwargs.empty() ? 0 : 1));
  for (const Value& value : args.values) value.pack(packer);
  if (!args.kwargs.empty()) Coder<Kwargs>::pack(packer, args.kwargs);
  view.has_kwargs = !args.kwargs.empty();
  view.body = packer.body();
  view.buffers = packer.buffers();
  return view;
}

ArgReader::ArgReader(const PayloadView& payload)
    : payload_(payload),
      unpacker_(payload.body, payload.buffers,
                lies_in(payload.body, payload.owner) ? &payload.owner : nullptr) {
  if (payload.codec == Codec::kNative) {
    count_ = unpacker_.array();
    if (payload.has_kwargs) {
      if (count_ == 0) throw PayloadError("malformed payload: the keyword arguments are missing");
      --count_;
    }
  } else if (payload.codec != Codec::kRaw && payload.codec != Codec::kPickle) {
    throw PayloadError(
        fmt::format("malformed payload: unknown codec {}", static_cast<unsigned>(payload.codec)));
  } else if (payload.has_kwargs) {
    throw PayloadError("malformed payload: raw bytes with keyword arguments");
  }
}

Buffer ArgReader::opaque_buffer() const {
  return Payload::copy_of(payload_).body;
}

void ArgReader::opaque_mismatch(const std::string& expected) const {
  throw PayloadError(
      fmt::format("expected {}, received {} {}", expected, payload_.body.size(),
                  payload_.codec == Codec::kPickle ? "bytes of a Python pickle" : "bytes"));
}

void ArgReader::wrong_count(std::size_t expected, const std::string& types) const {
  std::string received;
  if (payload_.codec == Codec::kNative) {
    Unpacker ahead(unpacker_);
    for (std::size_t i = 0; i < count_; ++i) {
      received += (i == 0 ? "" : ", ") + ahead.describe();
      ahead.skip();
    }
  } else {
    received = fmt::format("{} bytes", payload_.body.size());
  }
  throw PayloadError(fmt::format("expected {} arguments ({}), received {} ({})", expected, types,
                                 count_, received));
}

Kwargs ArgReader::kwargs() {
  if (!payload_.has_kwargs) return {};
  try {
    return Coder<Kwargs>::unpack(unpacker_);
  } catch (const PayloadError& error) {
    detail::rethrow_inside("keyword arguments", error);
  }
}

void ArgReader::refuse_kwargs() {
  std::string names;
  for (const auto& [name, value] : kwargs()) names += (names.empty() ? "" : ", ") + name;
  throw PayloadError(fmt::format("keyword arguments ({}) for a listener that takes none", names));
}

Args unpack_any(const PayloadView& payload) {
  ArgReader reader(payload);
  Args args;
  for (std::size_t i = 0; i < reader.count(); ++i) args.values.push_back(reader.next<Value>());
  args.kwargs = reader.kwargs();
  return args;
}

namespace detail {

std::string demangled(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

void number_does_not_fit(const Number& number, std::string_view type) {
  const auto fail = [&](const auto& value) {
    throw PayloadError(fmt::format("expected {}, received {}, which does not fit", type, value));
  };
  switch (number.kind) {
    case Number::Kind::kSigned: fail(number.as_signed); break;
    case Number::Kind::kUnsigned: fail(number.as_unsigned); break;
    case Number::Kind::kReal: fail(number.as_real); break;
  }
  std::abort();
}

void rethrow_inside(const std::string& place, const PayloadError& error) {
  throw PayloadError(place + ": " + error.what());
}

void wrong_length(std::string_view type, std::size_t expected, std::size_t received) {
  throw PayloadError(
      fmt::format("expected {}, received {} elements instead of {}", type, received, expected));
}

void missing_field(std::string_view type, std::string_view field) {
  throw PayloadError(fmt::format("the field \"{}\" of {} is missing", field, type));
}

}  // namespace detail
}  // namespace divisi
