// The DQN of one thread for python/divisi/serial.py.
#pragma once

#include <nanobind/nanobind.h>

namespace divisi::python {

// Adds the functions serial_config and serial_dqn.
void add_serial(nanobind::module_& m);

}  // namespace divisi::python
