// Site defaults: what `divisi run` takes where the command line says nothing.
//
// Two files, with the names of the flags as keys (`image: my/training:1`, `env: {A: b}`,
// `volume: [...]`): divisi.yaml in the package's folder or beside it, and
// $XDG_CONFIG_HOME/divisi/config.yaml (~/.config). The command line wins over the first, the first
// over the second. Lists are not joined: the nearest one counts. `env` is, name by name.
#pragma once

#include "base/status.h"
#include "launch/text.h"
#include "run/options.h"

#include <string>
#include <string_view>

namespace divisi::run {

struct SettingsFiles {
  std::string user{};     // empty: there is none
  std::string project{};  // likewise
};

// Which files there are for a package. A divisi.yaml of another user (but root) is not looked at.
SettingsFiles find_settings_files(const launch::Environment& environment,
                                  const std::string& package);

// The text of a settings file. `origin` names it in errors: a key that no flag has, a value of
// another kind.
Result<Settings> read_settings(std::string_view text, const std::string& origin);

// Every flag that has a value: from the line, the files, or its default.
Result<Settings> gather_settings(const CommandLine& line, const SettingsFiles& files);

// Without any file: for a line that was typed elsewhere, or long ago.
Result<Settings> gather_settings_of_line(const CommandLine& line);

// What --explain prints: flag, value, origin; a line each.
std::string explain(const Settings& settings);

}  // namespace divisi::run
