#include "runtime/entry.h"

#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <mutex>
#include <numeric>
#include <utility>

namespace divisi {

namespace {

using detail::EntryRecord;

// Lives for ever: registrars of other objects are destroyed in an order nobody controls.
struct Registry {
  std::mutex mutex;
  std::vector<const EntryRecord*> records;  // guarded by mutex

  static Registry& instance() {
    static auto* const registry = new Registry;
    return *registry;
  }
};

}  // namespace

detail::EntryRegistrar::EntryRegistrar(const EntryRecord* record) : record_(record) {
  auto& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.records.push_back(record_);
}

detail::EntryRegistrar::~EntryRegistrar() {
  auto& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.records, record_);
}

namespace runtime {

namespace {

// The object (program or shared library) that an address belongs to.
const link_map* object_of(const void* address) {
  Dl_info info{};
  void* map = nullptr;
  if (::dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(map);
}

const link_map* loaded_object(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) return nullptr;
  link_map* map = nullptr;
  ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map));
  ::dlclose(handle);  // gives back the count; load_library holds its own
  return map;
}

std::vector<const EntryRecord*> records_in(const link_map* object) {
  auto& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  std::vector<const EntryRecord*> found;
  for (const EntryRecord* const record : registry.records) {
    if (object == nullptr || object_of(record) == object) found.push_back(record);
  }
  return found;
}

std::string_view last_component(std::string_view name) {
  const std::size_t scope = name.rfind("::");
  return scope == std::string_view::npos ? name : name.substr(scope + 2);
}

std::string where_of(const EntryRecord& record) {
  return fmt::format("{}:{}", record.file, record.line);
}

Result<Entry> make_entry(const EntryRecord& record) {
  if (record.abi_version != DIVISI_ABI_VERSION) {
    return failure(Code::kInvalid,
                   "{} was compiled for divisi ABI version {}, this libdivisi has version {}: "
                   "compile the package again",
                   record.name, record.abi_version, DIVISI_ABI_VERSION);
  }
  Entry entry;
  const link_map* const object = object_of(&record);
  if (object != nullptr) entry.object = object->l_name;
  entry.ref = {entry.object, record.name, where_of(record), false};
  entry.call = record.call;
  return entry;
}

std::vector<std::string> names_of(const std::vector<const EntryRecord*>& records) {
  std::vector<std::string> names;
  for (const EntryRecord* const record : records) names.emplace_back(record->name);
  std::ranges::sort(names);
  const auto repeated = std::ranges::unique(names);
  names.erase(repeated.begin(), repeated.end());
  return names;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

Result<Entry> not_found(std::string_view object, std::string_view name,
                        const std::vector<std::string>& names) {
  const std::string place = object.empty() ? "this program" : std::string(object);
  if (names.empty()) {
    return failure(Code::kNotFound, "{} registers no function '{}': it has no DIVISI_MAIN at all",
                   place, name);
  }
  const std::vector<std::string> nearest = nearest_names(name, names);
  if (!nearest.empty()) {
    return failure(Code::kNotFound, "{} registers no function '{}'; did you mean {}?", place, name,
                   fmt::join(nearest, " or "));
  }
  return failure(Code::kNotFound, "{} registers no function '{}' (DIVISI_MAIN names: {})", place,
                 name, fmt::join(names, ", "));
}

// By the symbol table of its object; what that does not know is believed.
bool is_function(const void* address) {
  Dl_info info{};
  void* extra = nullptr;
  if (::dladdr1(address, &info, &extra, RTLD_DL_SYMENT) == 0 || extra == nullptr) return true;
  const int type = ELF64_ST_TYPE(static_cast<const ElfW(Sym)*>(extra)->st_info);
  return type != STT_OBJECT && type != STT_TLS && type != STT_COMMON;
}

Result<Entry> find_symbol(const EntryRef& ref) {
  void* const handle =
      ::dlopen(ref.library.empty() ? nullptr : ref.library.c_str(), RTLD_NOLOAD | RTLD_NOW);
  void* const symbol = handle == nullptr ? nullptr : ::dlsym(handle, ref.name.c_str());
  if (symbol == nullptr) {
    return failure(Code::kNotFound,
                   "{} exports no symbol '{}': declare it extern \"C\" int {}(int, char**)",
                   ref.library.empty() ? "this program" : ref.library, ref.name, ref.name);
  }
  if (!is_function(symbol)) {
    return failure(Code::kInvalid,
                   "'{}' in {} is no function: declare it extern \"C\" int {}(int, char**)",
                   ref.name, ref.library.empty() ? "this program" : ref.library, ref.name);
  }
  using Main = int (*)(int, char**);
  auto* const function = reinterpret_cast<Main>(symbol);
  Entry entry;
  entry.ref = ref;
  entry.object = ref.library;
  entry.call = [function, name = ref.name](const std::vector<std::string>& args) {
    return detail::call_main(*function, name.c_str(), args);
  };
  return entry;
}

}  // namespace

Result<Entry> find_entry(detail::AnyFunction function) {
  for (const EntryRecord* const record : records_in(nullptr)) {
    if (record->abi_version == DIVISI_ABI_VERSION && record->function == function) {
      return make_entry(*record);
    }
  }
  return failure(Code::kInvalid,
                 "the function is not registered, so worker processes cannot find it: write "
                 "DIVISI_MAIN(function) after its definition");
}

Result<Entry> find_entry(std::string_view object, std::string_view name, std::string_view where) {
  const link_map* map = nullptr;
  if (!object.empty()) {
    map = loaded_object(std::string(object));
    if (map == nullptr) return failure(Code::kNotFound, "{} is not loaded", object);
  }
  const auto records = records_in(map);
  const auto pick = [&](auto matches) -> const EntryRecord* {
    const EntryRecord* found = nullptr;
    for (const EntryRecord* const record : records) {
      if (!matches(*record)) continue;
      if (where.empty() ? found == nullptr
                        : record->abi_version == DIVISI_ABI_VERSION && where_of(*record) == where) {
        found = record;
      }
    }
    return found;
  };
  const EntryRecord* found = pick([&](const EntryRecord& r) { return r.name == name; });
  if (found == nullptr) {
    found = pick([&](const EntryRecord& r) { return last_component(r.name) == name; });
  }
  if (found == nullptr) return not_found(object, name, names_of(records));
  return make_entry(*found);
}

Status load_library(const std::string& path) {
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
  const char* const reason = ::dlerror();
  return make_status(Code::kNotFound, "loading {}: {}", path,
                     reason == nullptr ? "unknown reason" : reason);
}

Result<Entry> resolve_entry(const EntryRef& ref) {
  if (!ref.library.empty()) {
    if (Status status = load_library(ref.library); !status.ok()) return failure(std::move(status));
  }
  if (ref.is_symbol) return find_symbol(ref);
  return find_entry(ref.library, ref.name, ref.where);
}

std::vector<std::string> entry_names(std::string_view object) {
  if (object.empty()) return names_of(records_in(nullptr));
  const link_map* const map = loaded_object(std::string(object));
  return map == nullptr ? std::vector<std::string>() : names_of(records_in(map));
}

std::vector<std::string> nearest_names(std::string_view wanted,
                                       const std::vector<std::string>& candidates) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = std::min(edit_distance(wanted, candidate),
                                          edit_distance(wanted, last_component(candidate)));
    if (distance <= std::max<std::size_t>(2, wanted.size() / 3)) {
      ranked.emplace_back(distance, candidate);
    }
  }
  std::ranges::sort(ranked);
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < ranked.size() && i < 3; ++i) nearest.push_back(ranked[i].second);
  return nearest;
}

}  // namespace runtime
}  // namespace divisi
