// Python objects as payloads, and back (divisi/payload.h, docs/wire.md).
//
//   one bytes argument                                   codec 0, raw
//   None, bool, int, float, str, bytes, list, tuple,
//   dict, NumPy arrays and scalars, PyTorch tensors      codec 1, native
//   anything else, and subclasses of the above           codec 2, pickle protocol 5
//
// Arrays and tensors arrive as views of the received bytes. A sender's array that can still be
// written to is copied once, so that what is sent is what it was at the emit.
#pragma once

#include "divisi/payload.h"
#include "interpreter.h"

#include <string>
#include <string_view>

namespace divisi::python {

// An argument list of Python: a tuple, and a dict or nothing.
struct Call {
  Object args;
  Object kwargs;
};

// All of these need the lock and throw PythonError.

// `may_pickle` is asked only if something needs it; the error of a refusal names what.
const PayloadView& pack(PackScratch& scratch, std::string_view event, PyObject* args,
                        PyObject* kwargs, bool (*may_pickle)());
Call unpack(const PayloadView& payload);

Value to_value(PyObject* object);
PyObject* from_value(const Value& value);
Call from_args(const Args& args);

// The read-only bytes object behind received arrays; added to the module.
void add_buffer_type(PyObject* module);

// The memory of an array, read-only from now on for whoever gets it from here. The caller promises
// that nobody writes to it any more, so it is sent without a copy.
Object frozen_bytes(PyObject* object);

}  // namespace divisi::python
