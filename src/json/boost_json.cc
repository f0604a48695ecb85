// Boost.JSON, compiled into this module so that libdivisi.so does not need its shared library.
#include <boost/json/src.hpp>
