// `--module config`: runs a configuration written in Python and keeps its values.
#pragma once

#include "base/status.h"
#include "ding/options.h"
#include "json/value.h"

#include <string>

namespace divisi::ding {

// Runs options.config in a Python process of its own and writes `<config>.pkl`, whole or not at
// all; the path. The pickle holds `main`, `create` and `system` as plain values (as EasyDicts
// where that Python has easydict, so that DI-engine can use it too). The program is DIVISI_PYTHON
// or python3. A mistake of the file is one line with its place.
Result<std::string> prepare_config(const Options& options);

// What prepare_config() or DI-engine's command of that name has written.
Result<json::Value> read_config(const std::string& path);

}  // namespace divisi::ding
