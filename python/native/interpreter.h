// Python's interpreter lock (the GIL), and references to Python objects, for threads of the
// runtime.
//
// Threads of the runtime take the lock when the first listener of a batch is written in Python and
// keep it until they rest (FrontEnd::set_rest_hook): one hand-over a batch, not one an event.
//
// Nothing here waits for the lock while it holds a lock of the runtime, or the other way round:
// destructors never decrement a reference themselves, they leave that to whoever holds the lock.
#pragma once

#include <Python.h>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#if PY_VERSION_HEX < 0x030A0000  // Python 3.9
inline PyObject* Py_NewRef(PyObject* object) {
  Py_INCREF(object);
  return object;
}
inline PyObject* Py_XNewRef(PyObject* object) {
  Py_XINCREF(object);
  return object;
}
inline int PyModule_AddObjectRef(PyObject* module, const char* name, PyObject* value) {
  Py_INCREF(value);
  const int result = PyModule_AddObject(module, name, value);
  if (result < 0) Py_DECREF(value);
  return result;
}
#endif

namespace divisi::python {

// Takes the lock for this thread of the runtime until it rests. False: the interpreter is ending.
bool hold();
// Gives it back, if this thread took it by hold().
void rest() noexcept;

// Releases the lock while C++ waits or works. The thread holds it when this is made.
class Unlock {
 public:
  Unlock();
  ~Unlock();
  Unlock(const Unlock&) = delete;
  Unlock& operator=(const Unlock&) = delete;

 private:
  PyThreadState* state_;
  bool held_;
};

// Holds the lock in a scope, on any thread.
class Lock {
 public:
  Lock() : state_(PyGILState_Ensure()) {}
  ~Lock() { PyGILState_Release(state_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  PyGILState_STATE state_;
};

// Gives up a reference: at once is not promised, the lock is not needed.
void drop(PyObject* object) noexcept;
// Decrements what was dropped by threads without the lock. The caller holds it.
void drop_pending() noexcept;

// A reference that may go on any thread. Making a copy needs the lock.
class Object {
 public:
  Object() noexcept = default;
  static Object steal(PyObject* object) noexcept { return Object(object); }
  static Object share(PyObject* object) noexcept { return Object(Py_XNewRef(object)); }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() {
    if (object_ != nullptr) drop(object_);
  }

  PyObject* get() const noexcept { return object_; }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  explicit Object(PyObject* object) noexcept : object_(object) {}
  PyObject* object_ = nullptr;
};

// A Python exception on its way through C++. Copies share it.
class PythonError : public std::exception {
 public:
  PythonError();  // takes the exception that is set; the caller holds the lock
  const char* what() const noexcept override;
  void restore() const;  // sets it again
  // An ordinary exception, not an exit or an interrupt.
  bool is_ordinary() const;
  bool is(PyObject* type) const;
  PyObject* value() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// `object`, or a PythonError when it is null.
PyObject* checked(PyObject* object);
void check(int result);

// The same function, or the same method of the same object. Runs no Python code.
bool same_callable(PyObject* one, PyObject* other) noexcept;

void install_hooks();

}  // namespace divisi::python
