#include "payload.h"

#include "divisi/error.h"

#include <array>
#include <cstring>
#include <limits>
#include <optional>

namespace divisi::python {

namespace {

constexpr std::size_t kWorthUnlocking = std::size_t{1} << 20;

// --- types that are looked up once, and only if the program has loaded them itself ---

struct Modules {
  PyObject* array = nullptr;  // numpy.ndarray
  PyObject* generic = nullptr;
  PyObject* frombuffer = nullptr;
  PyObject* tensor = nullptr;  // torch.Tensor
  PyObject* torch = nullptr;
  PyObject* dumps = nullptr;  // pickle
  PyObject* loads = nullptr;
};

Modules& modules() {
  static auto* const modules = new Modules;
  return *modules;
}

PyObject* attribute(PyObject* object, const char* name) {
  return checked(PyObject_GetAttrString(object, name));
}

// A module that is loaded, borrowed; or null.
PyObject* loaded(const char* name) {
  PyObject* const all = PyImport_GetModuleDict();
  return PyDict_GetItemString(all, name);
}

void use_numpy(PyObject* numpy) {
  Modules& known = modules();
  known.generic = attribute(numpy, "generic");
  known.frombuffer = attribute(numpy, "frombuffer");
  known.array = attribute(numpy, "ndarray");
}

bool has_numpy() {
  if (modules().array != nullptr) return true;
  PyObject* const numpy = loaded("numpy");
  // While numpy itself is being imported it has no ndarray yet.
  if (numpy == nullptr || PyObject_HasAttrString(numpy, "ndarray") == 0) return false;
  use_numpy(numpy);
  return true;
}

bool has_torch() {
  Modules& known = modules();
  if (known.tensor != nullptr) return true;
  PyObject* const torch = loaded("torch");
  if (torch == nullptr || PyObject_HasAttrString(torch, "Tensor") == 0) return false;
  known.torch = Py_NewRef(torch);
  known.tensor = attribute(torch, "Tensor");
  return true;
}

void need_numpy() {
  if (has_numpy()) return;
  const Object numpy = Object::steal(checked(PyImport_ImportModule("numpy")));
  use_numpy(numpy.get());
}

void need_torch() {
  if (has_torch()) return;
  const Object torch = Object::steal(checked(PyImport_ImportModule("torch")));
  static_cast<void>(has_torch());
}

void need_pickle() {
  Modules& known = modules();
  if (known.loads != nullptr) return;
  const Object pickle = Object::steal(checked(PyImport_ImportModule("pickle")));
  known.dumps = attribute(pickle.get(), "dumps");
  known.loads = attribute(pickle.get(), "loads");
}

// --- dtypes ---

struct DTypeName {
  DType dtype;
  const char* numpy;  // what numpy.frombuffer takes
};
constexpr std::array<DTypeName, 14> kDTypes = {{{DType::kBool, "?"},
                                                {DType::kInt8, "i1"},
                                                {DType::kUint8, "u1"},
                                                {DType::kInt16, "<i2"},
                                                {DType::kUint16, "<u2"},
                                                {DType::kInt32, "<i4"},
                                                {DType::kUint32, "<u4"},
                                                {DType::kInt64, "<i8"},
                                                {DType::kUint64, "<u8"},
                                                {DType::kFloat16, "<f2"},
                                                {DType::kFloat32, "<f4"},
                                                {DType::kFloat64, "<f8"},
                                                {DType::kComplex64, "<c8"},
                                                {DType::kComplex128, "<c16"}}};

const char* numpy_name(DType dtype) {
  for (const DTypeName& known : kDTypes) {
    if (known.dtype == dtype) return known.numpy;
  }
  return nullptr;
}

// Of a buffer's format, as the struct module writes it; nothing for what does not travel natively.
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t size) {
  if (format == nullptr) return DType::kUint8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const bool is_complex = *format == 'Z';
  if (is_complex) ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  const auto sized = [size](DType one, DType two, DType four, DType eight) -> std::optional<DType> {
    switch (size) {
      case 1: return one;
      case 2: return two;
      case 4: return four;
      case 8: return eight;
      default: return std::nullopt;
    }
  };
  switch (*format) {
    case '?': return DType::kBool;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q': return sized(DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q': return sized(DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64);
    case 'e': return DType::kFloat16;
    case 'f': return is_complex ? DType::kComplex64 : DType::kFloat32;
    case 'd': return is_complex ? DType::kComplex128 : DType::kFloat64;
    default: return std::nullopt;
  }
}

// --- bytes ---

// Python's view of a Buffer: what arrays and pickles of received events are made of.
struct BufferObject {
  PyObject_HEAD Buffer* buffer;
  bool writable;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* const object = reinterpret_cast<BufferObject*>(self);
  return PyBuffer_FillInfo(view, self, object->buffer->mutable_data(),
                           static_cast<Py_ssize_t>(object->buffer->size()),
                           object->writable ? 0 : 1, flags);
}

void deallocate(PyObject* self) {
  delete reinterpret_cast<BufferObject*>(self)->buffer;
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyTypeObject* buffer_type = nullptr;

// PyTorch has no read-only tensors and warns about them, so its views are of writable bytes.
Object make_buffer(const Buffer& bytes, bool writable) {
  auto* const object =
      reinterpret_cast<BufferObject*>(checked(buffer_type->tp_alloc(buffer_type, 0)));
  object->buffer = new Buffer(bytes);
  object->writable = writable;
  return Object::steal(reinterpret_cast<PyObject*>(object));
}

// A Py_buffer that is released in time, with the lock.
struct View {
  Py_buffer buffer{};
  bool is_open = false;

  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() {
    if (is_open) PyBuffer_Release(&buffer);
  }
  bool open(PyObject* object, int flags) {
    is_open = PyObject_GetBuffer(object, &buffer, flags) == 0;
    if (!is_open) PyErr_Clear();
    return is_open;
  }
};

// Nobody can write to these bytes: they are immutable, or an array over such. An array that owns
// its memory and says that it is read-only is not enough: its owner can take that back.
bool is_frozen(PyObject* object) {
  Object base = Object::share(object);
  while (true) {
    if (PyBytes_CheckExact(base.get())) return true;
    if (Py_TYPE(base.get()) == buffer_type) {
      return !reinterpret_cast<BufferObject*>(base.get())->writable;
    }
    if (PyMemoryView_Check(base.get())) {
      PyObject* const exporter = PyMemoryView_GET_BASE(base.get());
      if (exporter == nullptr) return false;
      base = Object::share(exporter);
      continue;
    }
    if (!has_numpy() || reinterpret_cast<PyObject*>(Py_TYPE(base.get())) != modules().array) {
      return false;
    }
    View view;
    if (!view.open(base.get(), PyBUF_FULL_RO) || view.buffer.readonly == 0) return false;
    Object next = Object::steal(attribute(base.get(), "base"));
    if (next.get() == Py_None) return false;
    base = std::move(next);
  }
}

}  // namespace

Object frozen_bytes(PyObject* object) {
  View view;
  view.is_open = PyObject_GetBuffer(object, &view.buffer, PyBUF_C_CONTIGUOUS) == 0;
  if (!view.is_open) throw PythonError();
  PyObject* const keeper = checked(PyMemoryView_FromObject(object));
  return make_buffer(Buffer::wrap(view.buffer.buf, static_cast<std::size_t>(view.buffer.len),
                                  [keeper] { drop(keeper); }),
                     false);
}

namespace {

// The bytes that `object` exposes, kept alive by a memoryview. Bytes that somebody may still write
// to are copied, if they are so many that packing does not copy them anyway.
Buffer bytes_of(PyObject* object, const View& view, bool is_ours = false) {
  const auto size = static_cast<std::size_t>(view.buffer.len);
  if (size < kOutOfBand) return Buffer::wrap(view.buffer.buf, size, [] {});
  if (view.buffer.readonly != 0 && (is_ours || is_frozen(object))) {
    PyObject* const keeper = checked(PyMemoryView_FromObject(object));
    return Buffer::wrap(view.buffer.buf, size, [keeper] { drop(keeper); });
  }
  Buffer copy(size);
  if (size >= kWorthUnlocking) {
    const Unlock unlock;
    std::memcpy(copy.mutable_data(), view.buffer.buf, size);
  } else {
    std::memcpy(copy.mutable_data(), view.buffer.buf, size);
  }
  return copy;
}

// --- packing ---

class ObjectPacker {
 public:
  explicit ObjectPacker(Packer& packer) : packer_(packer) {}

  // False: the object needs pickle; offender() is its type.
  bool pack(PyObject* object, int depth = 0) {
    PyTypeObject* const type = Py_TYPE(object);
    if (object == Py_None) {
      packer_.nil();
    } else if (type == &PyBool_Type) {
      packer_.boolean(object == Py_True);
    } else if (type == &PyLong_Type) {
      return integer(object);
    } else if (type == &PyFloat_Type) {
      packer_.real(PyFloat_AS_DOUBLE(object));
    } else if (type == &PyUnicode_Type) {
      return text(object);
    } else if (type == &PyBytes_Type) {
      bytes(object);
    } else if (depth >= kMaxDepth - 2) {
      return refuse(object);
    } else if (type == &PyList_Type) {
      return list(object, depth);
    } else if (type == &PyTuple_Type) {
      return tuple(object, depth);
    } else if (type == &PyDict_Type) {
      return dict(object, depth);
    } else {
      return tensor(object);
    }
    return true;
  }

  PyTypeObject* offender() const { return offender_; }

 private:
  bool refuse(PyObject* object) {
    offender_ = Py_TYPE(object);
    return false;
  }

  bool integer(PyObject* object) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow == 0) {
      packer_.integer(value);
      return true;
    }
    if (overflow < 0) return refuse(object);
    const unsigned long long large = PyLong_AsUnsignedLongLong(object);
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return refuse(object);
    }
    packer_.unsigned_integer(large);
    return true;
  }

  bool text(PyObject* object) {
    Py_ssize_t size = 0;
    const char* const utf8 = PyUnicode_AsUTF8AndSize(object, &size);
    if (utf8 == nullptr) {  // lone surrogates
      PyErr_Clear();
      return refuse(object);
    }
    packer_.text({utf8, static_cast<std::size_t>(size)});
    return true;
  }

  void bytes(PyObject* object) {
    const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(object));
    if (size < kOutOfBand) {
      packer_.bytes({reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(object)), size});
      return;
    }
    PyObject* const keeper = Py_NewRef(object);
    packer_.buffer(Buffer::wrap(PyBytes_AS_STRING(object), size, [keeper] { drop(keeper); }));
  }

  bool list(PyObject* object, int depth) {
    const Py_ssize_t count = PyList_GET_SIZE(object);
    packer_.array(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      // Copying an array gives the lock away: the list may have changed meanwhile.
      if (i >= PyList_GET_SIZE(object)) {
        PyErr_SetString(PyExc_RuntimeError, "a list changed its size while it was emitted");
        throw PythonError();
      }
      const Object item = Object::share(PyList_GET_ITEM(object, i));
      if (!pack(item.get(), depth + 1)) return false;
    }
    return true;
  }

  bool tuple(PyObject* object, int depth) {
    const Py_ssize_t count = PyTuple_GET_SIZE(object);
    const std::size_t opened = packer_.open_tuple(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!pack(PyTuple_GET_ITEM(object, i), depth + 1)) return false;
    }
    packer_.close_tuple(opened);
    return true;
  }

  bool dict(PyObject* object, int depth) {
    const Object items = Object::steal(checked(PyDict_Items(object)));
    const Py_ssize_t count = PyList_GET_SIZE(items.get());
    packer_.map(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* const pair = PyList_GET_ITEM(items.get(), i);
      if (!pack(PyTuple_GET_ITEM(pair, 0), depth + 1)) return false;
      if (!pack(PyTuple_GET_ITEM(pair, 1), depth + 1)) return false;
    }
    return true;
  }

  bool tensor(PyObject* object) {
    if (has_numpy()) {
      const Modules& known = modules();
      if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == known.array) return array(object, 0);
      if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(known.generic)) != 0) {
        return array(object, 2);
      }
    }
    if (has_torch() && reinterpret_cast<PyObject*>(Py_TYPE(object)) == modules().tensor) {
      return torch_tensor(object);
    }
    return refuse(object);
  }

  bool array(PyObject* object, std::uint8_t flavour, std::optional<DType> dtype = {}) {
    View view;
    if (view.open(object, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
      return packed(object, view, flavour, dtype);
    // Not contiguous, or not a plain buffer (dates, objects).
    if (!view.open(object, PyBUF_FULL_RO)) return refuse(object);
    if (!dtype_of_format(view.buffer.format, view.buffer.itemsize)) return refuse(object);
    const Object copy = Object::steal(checked(PyObject_CallMethod(object, "copy", "s", "C")));
    View contiguous;
    if (!contiguous.open(copy.get(), PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return refuse(object);
    contiguous.buffer.readonly = 1;
    return packed(copy.get(), contiguous, flavour, dtype, true);
  }

  // `is_ours`: nobody else has the object.
  bool packed(PyObject* object, const View& view, std::uint8_t flavour, std::optional<DType> dtype,
              bool is_ours = false) {
    Tensor tensor;
    // Numbers have no dimensions; dates and byte strings show their bytes.
    if (flavour == 2 && view.buffer.ndim != 0) return refuse(object);
    if (!dtype) dtype = dtype_of_format(view.buffer.format, view.buffer.itemsize);
    if (!dtype || static_cast<std::size_t>(view.buffer.ndim) > Tensor::kMaxRank) {
      return refuse(object);
    }
    tensor.dtype = *dtype;
    tensor.shape.assign(view.buffer.shape, view.buffer.shape + view.buffer.ndim);
    tensor.data = bytes_of(object, view, is_ours);
    tensor.flavour = flavour;
    packer_.tensor(tensor);
    return true;
  }

  // By way of NumPy, which shares its memory. Tensors of a device are brought home first.
  bool torch_tensor(PyObject* object) {
    const Object plain = Object::steal(checked(PyObject_CallMethod(object, "detach", nullptr)));
    Object here = Object::steal(checked(PyObject_CallMethod(plain.get(), "cpu", nullptr)));
    const Object dtype = Object::steal(attribute(here.get(), "dtype"));
    const Object bfloat16 = Object::steal(attribute(modules().torch, "bfloat16"));
    std::optional<DType> known;
    if (dtype.get() == bfloat16.get()) {
      const Object int16 = Object::steal(attribute(modules().torch, "int16"));
      here = Object::steal(checked(PyObject_CallMethod(here.get(), "contiguous", nullptr)));
      here = Object::steal(checked(PyObject_CallMethod(here.get(), "view", "O", int16.get())));
      known = DType::kBfloat16;
    }
    const Object numpy = Object::steal(PyObject_CallMethod(here.get(), "numpy", nullptr));
    if (!numpy) {  // sparse, quantised
      PyErr_Clear();
      return refuse(object);
    }
    return array(numpy.get(), 1, known);
  }

  Packer& packer_;
  PyTypeObject* offender_ = nullptr;
};

const PayloadView& pack_raw(PackScratch& scratch, PyObject* bytes) {
  PayloadView& view = scratch.view();
  view = {};
  view.codec = Codec::kRaw;
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(bytes));
  view.body = {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes)), size};
  if (size >= kOutOfBand) {
    PyObject* const keeper = Py_NewRef(bytes);
    view.owner = Buffer::wrap(PyBytes_AS_STRING(bytes), size, [keeper] { drop(keeper); });
  }
  return view;
}

// Pickled, with the large buffers beside the body.
const PayloadView& pack_pickle(PackScratch& scratch, PyObject* args, PyObject* kwargs) {
  need_pickle();
  const Object found = Object::steal(checked(PyList_New(0)));
  const Object append = Object::steal(attribute(found.get(), "append"));
  const Object call = Object::steal(
      checked(Py_BuildValue("((OO)i)", args, kwargs == nullptr ? Py_None : kwargs, 5)));
  const Object options =
      Object::steal(checked(Py_BuildValue("{s:O}", "buffer_callback", append.get())));
  const Object body =
      Object::steal(checked(PyObject_Call(modules().dumps, call.get(), options.get())));

  Packer& packer = scratch.packer();
  packer.clear();
  packer.bytes({reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(body.get())),
                static_cast<std::size_t>(PyBytes_GET_SIZE(body.get()))});
  const std::size_t head =
      packer.body().size() - static_cast<std::size_t>(PyBytes_GET_SIZE(body.get()));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(found.get()); ++i) {
    const Object raw = Object::steal(
        checked(PyObject_CallMethod(PyList_GET_ITEM(found.get(), i), "raw", nullptr)));
    View view;
    if (!view.open(raw.get(), PyBUF_SIMPLE)) {
      PyErr_SetString(PyExc_BufferError, "a buffer of a pickled object is not contiguous");
      throw PythonError();
    }
    // Small ones are not worth a reference; their bytes go with the message.
    const auto size = static_cast<std::size_t>(view.buffer.len);
    packer.beside(size < kOutOfBand
                      ? Buffer::copy_of({static_cast<const std::byte*>(view.buffer.buf), size})
                      : bytes_of(raw.get(), view));
  }
  PayloadView& view = scratch.view();
  view = {};
  view.codec = Codec::kPickle;
  view.body = packer.body().subspan(head);
  view.buffers = packer.buffers();
  return view;
}

[[noreturn]] void refuse_pickle(std::string_view event, PyTypeObject* offender) {
  const std::string text =
      "event '" + std::string(event) + "' carries a " + offender->tp_name +
      ", which travels only as a pickle, and pickles are accepted only from peers that proved the "
      "job secret: set one (secret=..., --secret-file, DIVISI_SECRET_FILE), or allow_pickle=True "
      "(--allow-pickle) on a network you trust";
  PyErr_SetString(PyExc_TypeError, text.c_str());
  throw PythonError();
}

// --- unpacking ---

PyObject* array_of(const Tensor& tensor) {
  need_numpy();
  const bool is_torch = tensor.flavour == 1;
  const bool is_bfloat16 = tensor.dtype == DType::kBfloat16;
  const char* const name = is_bfloat16 ? "<i2" : numpy_name(tensor.dtype);
  const Object buffer = make_buffer(tensor.data, is_torch || is_bfloat16);
  Object array;
  if (tensor.data.empty()) {  // frombuffer refuses nothing at all
    const Object numpy = Object::steal(checked(PyImport_ImportModule("numpy")));
    array = Object::steal(checked(PyObject_CallMethod(numpy.get(), "empty", "is", 0, name)));
    if (!is_torch) {  // read-only, as the others
      Py_DECREF(checked(PyObject_CallMethod(array.get(), "setflags", "i", 0)));
    }
  } else {
    array = Object::steal(
        checked(PyObject_CallFunction(modules().frombuffer, "Os", buffer.get(), name)));
  }
  if (tensor.shape.size() != 1) {
    const Object shape =
        Object::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(tensor.shape.size()))));
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      PyTuple_SET_ITEM(shape.get(), static_cast<Py_ssize_t>(i),
                       checked(PyLong_FromLongLong(tensor.shape[i])));
    }
    array = Object::steal(checked(PyObject_CallMethod(array.get(), "reshape", "(O)", shape.get())));
  }
  if (tensor.flavour == 2 && tensor.shape.empty()) {
    const Object empty = Object::steal(checked(PyTuple_New(0)));
    return checked(PyObject_GetItem(array.get(), empty.get()));
  }
  if (!is_torch && !is_bfloat16) return array.release();
  need_torch();
  Object made =
      Object::steal(checked(PyObject_CallMethod(modules().torch, "from_numpy", "O", array.get())));
  if (is_bfloat16) {
    const Object dtype = Object::steal(attribute(modules().torch, "bfloat16"));
    made = Object::steal(checked(PyObject_CallMethod(made.get(), "view", "O", dtype.get())));
  }
  return made.release();
}

PyObject* unpack_value(Unpacker& in);

PyObject* unpack_list(Unpacker& in) {
  const bool is_tuple = in.is_tuple();
  const std::size_t count = in.array();
  Object made = Object::steal(checked(is_tuple ? PyTuple_New(static_cast<Py_ssize_t>(count))
                                               : PyList_New(static_cast<Py_ssize_t>(count))));
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* const item = unpack_value(in);
    if (is_tuple) {
      PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), item);
    } else {
      PyList_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), item);
    }
  }
  in.leave();
  return made.release();
}

PyObject* unpack_dict(Unpacker& in) {
  const std::size_t count = in.map();
  Object made = Object::steal(checked(PyDict_New()));
  for (std::size_t i = 0; i < count; ++i) {
    const Object key = Object::steal(unpack_value(in));
    const Object value = Object::steal(unpack_value(in));
    check(PyDict_SetItem(made.get(), key.get(), value.get()));
  }
  in.leave();
  return made.release();
}

PyObject* unpack_value(Unpacker& in) {
  using Kind = Unpacker::Kind;
  switch (in.kind()) {
    case Kind::kNil: in.nil(); return Py_NewRef(Py_None);
    case Kind::kBool: return PyBool_FromLong(in.boolean() ? 1 : 0);
    case Kind::kInteger: {
      const Number number = in.number("integer");
      return checked(number.kind == Number::Kind::kSigned
                         ? PyLong_FromLongLong(number.as_signed)
                         : PyLong_FromUnsignedLongLong(number.as_unsigned));
    }
    case Kind::kReal: return checked(PyFloat_FromDouble(in.number("float").as_real));
    case Kind::kText: {
      const std::string_view text = in.text();
      return checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                          "surrogateescape"));
    }
    case Kind::kBytes:
    case Kind::kBuffer: {
      const std::span<const std::byte> bytes = in.bytes();
      return checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                               static_cast<Py_ssize_t>(bytes.size())));
    }
    case Kind::kArray: return unpack_list(in);
    case Kind::kMap: return unpack_dict(in);
    case Kind::kTensor: return array_of(in.tensor());
    case Kind::kUnknown: break;
  }
  in.mismatch("a value that Python knows");
}

Call unpack_raw(const PayloadView& payload) {
  const Object bytes = Object::steal(
      checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(payload.body.data()),
                                        static_cast<Py_ssize_t>(payload.body.size()))));
  return {Object::steal(checked(PyTuple_Pack(1, bytes.get()))), {}};
}

Call unpack_pickle(const PayloadView& payload) {
  need_pickle();
  const Object buffers =
      Object::steal(checked(PyList_New(static_cast<Py_ssize_t>(payload.buffers.size()))));
  for (std::size_t i = 0; i < payload.buffers.size(); ++i) {
    PyList_SET_ITEM(buffers.get(), static_cast<Py_ssize_t>(i),
                    make_buffer(payload.buffers[i], false).release());
  }
  const Object body = Object::steal(checked(
      PyMemoryView_FromMemory(const_cast<char*>(reinterpret_cast<const char*>(payload.body.data())),
                              static_cast<Py_ssize_t>(payload.body.size()), PyBUF_READ)));
  const Object call = Object::steal(checked(PyTuple_Pack(1, body.get())));
  const Object options = Object::steal(checked(Py_BuildValue("{s:O}", "buffers", buffers.get())));
  const Object pair =
      Object::steal(checked(PyObject_Call(modules().loads, call.get(), options.get())));
  if (!PyTuple_Check(pair.get()) || PyTuple_GET_SIZE(pair.get()) != 2 ||
      !PyTuple_Check(PyTuple_GET_ITEM(pair.get(), 0))) {
    PyErr_SetString(PyExc_ValueError, "a pickled event is not a pair of arguments");
    throw PythonError();
  }
  Call made{Object::share(PyTuple_GET_ITEM(pair.get(), 0)), {}};
  PyObject* const kwargs = PyTuple_GET_ITEM(pair.get(), 1);
  if (PyDict_Check(kwargs)) made.kwargs = Object::share(kwargs);
  return made;
}

}  // namespace

const PayloadView& pack(PackScratch& scratch, std::string_view event, PyObject* args,
                        PyObject* kwargs, bool (*may_pickle)()) {
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  const bool has_kwargs = kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0;
  if (count == 1 && !has_kwargs && PyBytes_CheckExact(PyTuple_GET_ITEM(args, 0))) {
    return pack_raw(scratch, PyTuple_GET_ITEM(args, 0));
  }
  Packer& packer = scratch.packer();
  packer.clear();
  packer.array(static_cast<std::size_t>(count) + (has_kwargs ? 1 : 0));
  ObjectPacker objects(packer);
  bool is_native = true;
  for (Py_ssize_t i = 0; i < count && is_native; ++i) {
    is_native = objects.pack(PyTuple_GET_ITEM(args, i));
  }
  if (is_native && has_kwargs) is_native = objects.pack(kwargs);
  if (!is_native) {
    if (!may_pickle()) refuse_pickle(event, objects.offender());
    return pack_pickle(scratch, args, kwargs);
  }
  PayloadView& view = scratch.view();
  view = {};
  view.has_kwargs = has_kwargs;
  view.body = packer.body();
  view.buffers = packer.buffers();
  return view;
}

Call unpack(const PayloadView& payload) {
  if (payload.codec == Codec::kRaw) return unpack_raw(payload);
  if (payload.codec == Codec::kPickle) return unpack_pickle(payload);
  Unpacker in(payload.body, payload.buffers, &payload.owner);
  std::size_t count = in.array();
  if (payload.has_kwargs) {
    if (count == 0) in.mismatch("keyword arguments");
    --count;
  }
  Call call{Object::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(count)))), {}};
  for (std::size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(call.args.get(), static_cast<Py_ssize_t>(i), unpack_value(in));
  }
  if (payload.has_kwargs) call.kwargs = Object::steal(unpack_dict(in));
  return call;
}

Value to_value(PyObject* object) {
  PackScratch scratch;
  scratch.packer().clear();
  ObjectPacker objects(scratch.packer());
  if (!objects.pack(object)) {
    const std::string text = std::string("a ") + objects.offender()->tp_name +
                             " cannot be the answer of a call: return plain values or arrays";
    PyErr_SetString(PyExc_TypeError, text.c_str());
    throw PythonError();
  }
  Unpacker in(scratch.packer().body(), scratch.packer().buffers());
  return Value::unpack(in);
}

PyObject* from_value(const Value& value) {
  PackScratch scratch;
  scratch.packer().clear();
  value.pack(scratch.packer());
  Unpacker in(scratch.packer().body(), scratch.packer().buffers());
  return unpack_value(in);
}

Call from_args(const Args& args) {
  PackScratch scratch;
  // pack_args turns a single Buffer into a raw payload; unpack knows both.
  return unpack(pack_args(scratch, args));
}

void add_buffer_type(PyObject* module) {
  static std::array<PyType_Slot, 4> slots = {{
      {Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
      {Py_tp_doc, const_cast<char*>("Received bytes; arrays are views of it.")},
      {0, nullptr},
  }};
  static PyType_Spec spec = {"divisi._native.Buffer", sizeof(BufferObject), 0, Py_TPFLAGS_DEFAULT,
                             slots.data()};
  PyObject* const type = checked(PyType_FromSpec(&spec));
  buffer_type = reinterpret_cast<PyTypeObject*>(type);
  check(PyModule_AddObjectRef(module, "Buffer", type));
}

}  // namespace divisi::python
