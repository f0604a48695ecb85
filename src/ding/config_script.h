// The Python program behind `--module config`. Arguments: the configuration, the file to write,
// and hosts, ports, seed and platform as JSON. A failure is one line on standard error.
#pragma once

#include <string_view>

namespace divisi::ding {

inline constexpr std::string_view kConfigScript = R"PY(
import json, os, pickle, runpy, sys, tempfile, traceback, types

path, output, places = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


def fail(text):
    sys.stderr.write(" ".join(str(text).split()) + "\n")
    sys.stderr.flush()
    os._exit(3)


class EasyDict(dict):
    """Stands in where easydict is not installed: items are attributes too."""

    def __init__(self, *args, **kwargs):
        super().__init__()
        self.update(*args, **kwargs)

    @classmethod
    def _easy(cls, value):
        if isinstance(value, dict) and not isinstance(value, EasyDict):
            return cls(value)
        if isinstance(value, (list, tuple)):
            return type(value)(cls._easy(item) for item in value)
        return value

    def __setitem__(self, key, value):
        super().__setitem__(key, self._easy(value))

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = __setitem__

    def __delattr__(self, name):
        del self[name]

    def update(self, *args, **kwargs):
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


try:
    import easydict
    easy = easydict.EasyDict
except ImportError:
    easy = None
    module = types.ModuleType("easydict")
    module.EasyDict = EasyDict
    sys.modules["easydict"] = module


def run():
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    try:
        return runpy.run_path(path, run_name="__divisi_config__")
    except SyntaxError as error:
        fail(f"{error.filename}:{error.lineno}: {error.msg}")
    except SystemExit as error:
        fail(f"{path}: it ends Python (exit {error.code}) instead of defining its values")
    except BaseException as error:
        here = os.path.abspath(path)
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == here]
        fail(f"{path}:{lines[-1] if lines else 1}: {type(error).__name__}: {error}")


def plain(value, place, above=()):
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        for kind in (bool, int, float, str, bytes):
            if isinstance(value, kind):
                return kind(value)
        return None
    if id(value) in above or len(above) > 80:
        fail(f"{path}: {place} contains itself, or is nested too deeply")
    above = above + (id(value),)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                fail(f"{path}: {place} has the key {key!r}: keys must be text")
        return {str(key): plain(item, f"{place}.{key}", above) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        kind = next(k for k in (list, tuple, set, frozenset) if isinstance(value, k))
        return kind(plain(item, f"{place}[{i}]", above) for i, item in enumerate(value))
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return plain(value.item(), place, above)
    fail(f"{path}: {place} is of type {type(value).__name__}: a configuration holds numbers, texts, lists and dicts")


values = run()
parts = {}
for name in ("main", "create", "system"):
    if not isinstance(values.get(name + "_config"), dict):
        fail(f"{path}: it defines no {name}_config (a dict or EasyDict)")
    parts[name] = plain(values[name + "_config"], name + "_config")

system = parts["system"]
system.setdefault("coordinator", {})
if not isinstance(system["coordinator"], dict):
    fail(f"{path}: system_config.coordinator is no dict")
system["coordinator"].update(places["coordinator"])
for role in ("collector", "learner"):
    shared = {key: system[key] for key in ("path_data", "path_policy") if key in system}
    system[role] = {**shared, **places[role]}
parts["seed"] = places["seed"]
parts["platform"] = places["platform"]

try:
    folder = os.path.dirname(os.path.abspath(output))
    handle, temporary = tempfile.mkstemp(prefix=".tmp.", dir=folder)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(easy(parts) if easy else parts, file, protocol=2)
    os.chmod(temporary, 0o644)
    os.replace(temporary, output)
except OSError as error:
    fail(f"{output}: {error.strerror or error}")
)PY";

}  // namespace divisi::ding
