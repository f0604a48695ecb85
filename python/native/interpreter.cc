#include "interpreter.h"

#include "divisi/detail/front_end.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace divisi::python {

namespace {

bool is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// What one thread knows of the lock.
struct Thread {
  PyThreadState* state = nullptr;  // kept between two holds: a new one for each would cost more
  bool is_ours = false;            // made here, for a thread that Python did not know
  bool held = false;
  std::vector<PyObject*> dropped;  // while held

  ~Thread() {
    if (state == nullptr || !is_ours || is_ending()) return;
    PyEval_RestoreThread(state);
    PyThreadState_Clear(state);
    PyThreadState_DeleteCurrent();
  }
};

Thread& thread() {
  thread_local Thread thread;
  return thread;
}

// References given up by threads without the lock.
struct Pending {
  std::mutex mutex;
  std::vector<PyObject*> objects;  // guarded by mutex
  std::atomic<bool> any{false};
};

Pending& pending() {
  static auto* const pending = new Pending;  // threads may outlive static objects
  return *pending;
}

int drop_pending_call(void*) {
  drop_pending();
  return 0;
}

void drop_held(Thread& self) noexcept {
  // What is destroyed may run Python code that drops more.
  while (!self.dropped.empty()) {
    PyObject* const object = self.dropped.back();
    self.dropped.pop_back();
    Py_DECREF(object);
  }
}

std::string text_of(PyObject* value) {
  std::string text = Py_TYPE(value)->tp_name;
  if (const std::size_t dot = text.rfind('.'); dot != std::string::npos) text.erase(0, dot + 1);
  PyObject* const message = PyObject_Str(value);
  const char* const utf8 = message == nullptr ? nullptr : PyUnicode_AsUTF8(message);
  if (utf8 != nullptr && *utf8 != '\0') text += std::string(": ") + utf8;
  if (utf8 == nullptr) PyErr_Clear();
  Py_XDECREF(message);
  return text;
}

}  // namespace

bool hold() {
  Thread& self = thread();
  if (self.held) {
    if (self.dropped.size() > 64) drop_held(self);
    return true;
  }
  if (is_ending()) return false;
  if (self.state != nullptr) {
    PyEval_RestoreThread(self.state);
  } else {
    self.is_ours = PyGILState_GetThisThreadState() == nullptr;
    PyGILState_Ensure();
    self.state = PyThreadState_Get();
  }
  self.held = true;
  return true;
}

void rest() noexcept {
  Thread& self = thread();
  if (!self.held) return;
  drop_held(self);
  drop_pending();
  self.held = false;
  self.state = PyEval_SaveThread();
}

Unlock::Unlock() : held_(std::exchange(thread().held, false)) {
  state_ = PyEval_SaveThread();
}

Unlock::~Unlock() {
  PyEval_RestoreThread(state_);
  thread().held = held_;
}

void drop(PyObject* object) noexcept {
  Thread& self = thread();
  if (self.held) {
    self.dropped.push_back(object);
    return;
  }
  Pending& all = pending();
  {
    const std::lock_guard lock(all.mutex);
    all.objects.push_back(object);
  }
  // The main thread comes to it soon, should nobody else.
  if (!all.any.exchange(true) && !is_ending()) Py_AddPendingCall(drop_pending_call, nullptr);
}

void drop_pending() noexcept {
  Pending& all = pending();
  if (!all.any.load(std::memory_order_relaxed)) return;
  all.any.store(false);
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(all.mutex);
    objects.swap(all.objects);
  }
  for (PyObject* const object : objects) Py_DECREF(object);
}

struct PythonError::State {
  Object type;
  Object value;
  Object traceback;
  std::string text;
};

PythonError::PythonError() : state_(std::make_shared<State>()) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  state_->type = Object::steal(type);
  state_->value = Object::steal(value);
  state_->traceback = Object::steal(traceback);
  state_->text = value == nullptr ? "an unknown Python error" : text_of(value);
}

const char* PythonError::what() const noexcept {
  return state_->text.c_str();
}

void PythonError::restore() const {
  PyErr_Restore(Py_XNewRef(state_->type.get()), Py_XNewRef(state_->value.get()),
                Py_XNewRef(state_->traceback.get()));
}

bool PythonError::is_ordinary() const {
  return is(PyExc_Exception);
}

bool PythonError::is(PyObject* type) const {
  return PyErr_GivenExceptionMatches(state_->type.get(), type) != 0;
}

PyObject* PythonError::value() const noexcept {
  return state_->value.get();
}

PyObject* checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return object;
}

void check(int result) {
  if (result < 0) throw PythonError();
}

bool same_callable(PyObject* one, PyObject* other) noexcept {
  if (one == other) return true;
  if (PyMethod_Check(one) && PyMethod_Check(other)) {
    return PyMethod_GET_SELF(one) == PyMethod_GET_SELF(other) &&
           PyMethod_GET_FUNCTION(one) == PyMethod_GET_FUNCTION(other);
  }
  if (PyCFunction_Check(one) && PyCFunction_Check(other)) {  // list.append and the like
    return PyCFunction_GET_SELF(one) != nullptr &&
           PyCFunction_GET_SELF(one) == PyCFunction_GET_SELF(other) &&
           PyCFunction_GET_FUNCTION(one) == PyCFunction_GET_FUNCTION(other);
  }
  return false;
}

void install_hooks() {
  detail::FrontEnd::set_rest_hook(&rest);
}

}  // namespace divisi::python
