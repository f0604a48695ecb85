// Whether a shared object fits: read from its ELF headers, nothing is loaded.
#include "divisi/export.h"
#include "launch/text.h"
#include "run/package.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <sys/utsname.h>

namespace divisi::run {
namespace {

constexpr std::array<std::pair<int, std::string_view>, 7> kMachines{{{EM_X86_64, "x86_64"},
                                                                     {EM_AARCH64, "aarch64"},
                                                                     {EM_386, "i686"},
                                                                     {EM_ARM, "armv7l"},
                                                                     {EM_PPC64, "ppc64le"},
                                                                     {EM_RISCV, "riscv64"},
                                                                     {EM_S390, "s390x"}}};

std::string machine_name(int machine) {
  for (const auto& [number, name] : kMachines) {
    if (number == machine) return std::string(name);
  }
  return fmt::format("machine {}", machine);
}

std::string this_machine() {
  utsname about{};
  return ::uname(&about) == 0 ? about.machine : "x86_64";
}

// A structure of the file at an offset; nothing beyond its end.
template <class T>
std::optional<T> at(std::string_view file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

std::string_view text_at(std::string_view file, std::uint64_t offset) {
  if (offset >= file.size()) return {};
  const std::string_view rest = file.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

class Sections {
 public:
  Sections(std::string_view file, const Elf64_Ehdr& header) : file_(file), header_(header) {}

  std::optional<Elf64_Shdr> section(std::size_t index) const {
    if (index >= header_.e_shnum) return std::nullopt;
    return at<Elf64_Shdr>(file_, header_.e_shoff + index * sizeof(Elf64_Shdr));
  }

  // The ABI version in a record of DIVISI_MAIN that is not the runtime's own; nothing if all fit,
  // or if the names of local objects were stripped.
  std::optional<int> other_abi() const {
    for (std::size_t i = 0; i < header_.e_shnum; ++i) {
      const auto table = section(i);
      if (!table || table->sh_type != SHT_SYMTAB) continue;
      if (const auto found = other_abi_in(*table)) return found;
    }
    return std::nullopt;
  }

 private:
  std::optional<int> other_abi_in(const Elf64_Shdr& table) const {
    const auto names = section(table.sh_link);
    if (!names) return std::nullopt;
    for (std::uint64_t offset = 0; offset + sizeof(Elf64_Sym) <= table.sh_size;
         offset += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(file_, table.sh_offset + offset);
      if (!symbol) return std::nullopt;
      const std::string_view name = text_at(file_, names->sh_offset + symbol->st_name);
      // The records themselves; functions that they name have it in their names, too.
      if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT ||
          name.find("divisi_main_record_") == std::string_view::npos) {
        continue;
      }
      const auto home = section(symbol->st_shndx);
      if (!home || home->sh_type == SHT_NOBITS || symbol->st_value < home->sh_addr) continue;
      const auto version = at<int>(file_, home->sh_offset + (symbol->st_value - home->sh_addr));
      if (version && *version != DIVISI_ABI_VERSION) return version;
    }
    return std::nullopt;
  }

  const std::string_view file_;
  const Elf64_Ehdr& header_;
};

}  // namespace

Status check_shared_object(const std::string& path, const std::string& architecture) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, sizeof(Elf64_Ehdr)> head{};
  in.read(head.data(), head.size());
  const std::string_view start(head.data(), static_cast<std::size_t>(in.gcount()));
  if (!start.starts_with(std::string_view(ELFMAG, SELFMAG))) return {};
  const auto header = at<Elf64_Ehdr>(start, 0);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return make_status(Code::kInvalid, "{} is not a 64-bit little-endian shared object", path);
  }
  const std::string wanted = architecture.empty() ? this_machine() : architecture;
  const std::string built = machine_name(header->e_machine);
  if (built != wanted) {
    return make_status(Code::kInvalid, "{} is built for {}, the workers run on {}; build it there",
                       path, built, wanted);
  }
  in.clear();
  in.seekg(0);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  if (const auto other = Sections(file, *header).other_abi()) {
    return make_status(Code::kInvalid,
                       "{} is built against ABI version {} of divisi, this one has {}; build it "
                       "again with the headers of this version",
                       path, *other, DIVISI_ABI_VERSION);
  }
  return {};
}

}  // namespace divisi::run
