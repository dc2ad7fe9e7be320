#include "sim/cuda/image.h"

#include <elf.h>

#include <cstring>
#include <string_view>

#include "sim/cuda/unpack.h"

namespace carve::sim::cu {
namespace {

constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
constexpr std::uint32_t kFatbinWrapper = 0x466243b1;
constexpr std::uint16_t kFatbinPtx = 1;
constexpr std::uint16_t kFatbinElf = 2;
constexpr std::uint64_t kFatbinLz4 = 0x2000;
constexpr std::uint64_t kFatbinZstd = 0x8000;

// NVIDIA's fat binary: a header, then entries. Field names are ours.
struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t payload_bytes;
};
struct FatEntry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t packed_bytes, reserved0;
  std::uint16_t minor, major;
  std::uint32_t arch, name_offset, name_bytes;
  std::uint64_t flags, zero, unpacked_bytes;
};
static_assert(sizeof(FatEntry) == 64);

bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}

std::string_view next_word(std::string_view text, std::size_t* at) {
  while (*at < text.size() &&
         (text[*at] == ' ' || text[*at] == '\t' || text[*at] == '\n' || text[*at] == '\r'))
    ++*at;
  const std::size_t begin = *at;
  while (*at < text.size() && name_char(text[*at])) ++*at;
  return text.substr(begin, *at - begin);
}

std::uint64_t number_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return 0;
  std::uint64_t n = 0;
  for (std::size_t i = at + key.size(); i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
    n = n * 10 + static_cast<std::uint64_t>(text[i] - '0');
  return n;
}

/// Bytes of a PTX type word such as ".u64" or ".b8".
std::uint32_t type_bytes(std::string_view type) {
  if (type == ".pred") return 1;
  if (type.ends_with("128")) return 16;
  if (type.ends_with("64")) return 8;
  if (type.ends_with("32") || type.ends_with("x2")) return 4;
  if (type.ends_with("16")) return 2;
  return type.ends_with("8") ? 1 : 0;
}

/// One ".param" declaration: ".param .align 8 .b8 name[24]" or ".param .u64 name".
std::uint64_t declared_bytes(std::string_view declaration, std::uint64_t* alignment,
                             std::string_view* name) {
  std::size_t at = 0;
  std::uint64_t unit = 0;
  *alignment = 0;
  for (std::string_view word = next_word(declaration, &at); !word.empty();
       word = next_word(declaration, &at)) {
    if (word == ".align") {
      *alignment = number_after(next_word(declaration, &at), "");
    } else if (word == ".ptr") {
      continue;
    } else if (word.starts_with(".")) {
      if (const std::uint32_t bytes = type_bytes(word); bytes != 0) unit = bytes;
    } else {
      *name = word;
      break;
    }
  }
  if (*alignment == 0) *alignment = unit;
  const std::size_t bracket = declaration.find('[', at);
  if (bracket == std::string_view::npos) return unit;
  return unit * number_after(declaration.substr(bracket + 1), "");
}

void read_parameters(std::string_view list, ImageKernel* kernel) {
  std::uint32_t offset = 0;
  for (std::size_t at = list.find(".param"); at != std::string_view::npos;) {
    const std::size_t next = list.find(".param", at + 1);
    std::uint64_t alignment = 0;
    std::string_view name;
    const std::uint64_t bytes =
        declared_bytes(list.substr(at + 6, next == std::string_view::npos ? next : next - at - 6),
                       &alignment, &name);
    if (alignment > 1)
      offset = static_cast<std::uint32_t>((offset + alignment - 1) / alignment * alignment);
    kernel->parameters.push_back({offset, static_cast<std::uint32_t>(bytes)});
    offset += static_cast<std::uint32_t>(bytes);
    at = next;
  }
  kernel->parameters_known = true;
}

void read_globals(std::string_view text, Image* out) {
  int depth = 0;
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t end = std::min(text.find('\n', line), text.size());
    const std::string_view row = text.substr(line, end - line);
    const bool global = row.find(".global") != std::string_view::npos ||
                        row.find(".const") != std::string_view::npos;
    if (depth == 0 && global && row.find(".extern") == std::string_view::npos) {
      std::uint64_t alignment = 0;
      std::string_view name;
      const std::size_t stop = row.find('=');
      const std::size_t skip = row.find(".global") != std::string_view::npos
                                   ? row.find(".global") + 7
                                   : row.find(".const") + 6;
      const std::uint64_t bytes = declared_bytes(row.substr(skip, stop - skip), &alignment, &name);
      if (bytes > 0 && !name.empty()) out->globals.push_back({std::string(name), bytes});
    }
    if (row.find(".global") == std::string_view::npos)
      for (char c : row) depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    line = end + 1;
  }
}

ImageError read_ptx(std::string_view text, Image* out) {
  if (text.find(".version") == std::string_view::npos) return ImageError::kBadPtx;
  std::size_t previous = 0;
  for (std::size_t at = text.find(".entry"); at != std::string_view::npos;
       at = text.find(".entry", at)) {
    at += 6;
    ImageKernel kernel;
    kernel.name = std::string(next_word(text, &at));
    const std::size_t open = text.find_first_of("({", at);
    std::size_t body = open;
    if (open != std::string_view::npos && text[open] == '(') {
      const std::size_t close = text.find(')', open);
      if (close == std::string_view::npos) return ImageError::kBadPtx;
      read_parameters(text.substr(open, close - open), &kernel);
      body = close;
    } else {
      kernel.parameters_known = true;
    }
    const std::size_t end = std::min(text.find(".entry", at), text.size());
    const std::size_t brace = body == std::string_view::npos ? end : text.find('{', body);
    // The comment may be before the entry or inside its body, but not in the neighbouring entry.
    const std::string_view before = text.substr(previous, at - previous);
    const std::size_t last = before.rfind('}');
    kernel.duration_ns =
        1000 * number_after(last == std::string_view::npos ? before : before.substr(last),
                            "carve.duration_us=");
    const std::size_t closing =
        brace == std::string_view::npos ? end : std::min(text.find('}', brace), end);
    if (kernel.duration_ns == 0)
      kernel.duration_ns = 1000 * number_after(text.substr(at, closing - at), "carve.duration_us=");
    if (!kernel.name.empty()) out->kernels.push_back(std::move(kernel));
    previous = at;
  }
  read_globals(text, out);
  return ImageError::kNone;
}

/// Kernel parameters from a cubin's ".nv.info.<kernel>": attribute 0x17 of format 4, 12 bytes each.
void read_kernel_info(const unsigned char* data, std::uint64_t bytes, ImageKernel* kernel) {
  for (std::uint64_t at = 0; at + 4 <= bytes;) {
    const unsigned format = data[at], attribute = data[at + 1];
    std::uint16_t size = 0;
    std::memcpy(&size, data + at + 2, 2);
    at += 4;
    if (format != 4) continue;  // the value is in the size field
    if (attribute == 0x17 && size >= 12 && at + 12 <= bytes) {
      std::uint16_t ordinal = 0, offset = 0;
      std::uint32_t packed = 0;
      std::memcpy(&ordinal, data + at + 4, 2);
      std::memcpy(&offset, data + at + 6, 2);
      std::memcpy(&packed, data + at + 8, 4);
      if (ordinal < 4096) {
        if (kernel->parameters.size() <= ordinal) kernel->parameters.resize(ordinal + 1U);
        kernel->parameters[ordinal] = {offset, packed >> 18};
      }
    }
    at += size;
  }
  kernel->parameters_known = true;
}

ImageError read_elf(const unsigned char* base, Image* out) {
  Elf64_Ehdr header;
  std::memcpy(&header, base, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
    return ImageError::kNotAnImage;
  const auto section = [&](unsigned i) {
    Elf64_Shdr s;
    std::memcpy(&s, base + header.e_shoff + std::uint64_t{i} * sizeof s, sizeof s);
    return s;
  };
  if (header.e_shstrndx >= header.e_shnum) return ImageError::kNotAnImage;
  const char* names = reinterpret_cast<const char*>(base) + section(header.e_shstrndx).sh_offset;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const std::string_view name = names + section(i).sh_name;
    if (!name.starts_with(".text.")) continue;
    ImageKernel kernel;
    kernel.name = std::string(name.substr(6));
    for (unsigned j = 0; j < header.e_shnum; ++j) {
      const Elf64_Shdr info = section(j);
      if (std::string_view(names + info.sh_name) == ".nv.info." + kernel.name)
        read_kernel_info(base + info.sh_offset, info.sh_size, &kernel);
    }
    out->kernels.push_back(std::move(kernel));
  }
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= header.e_shnum) continue;
    const char* strings = reinterpret_cast<const char*>(base) + section(table.sh_link).sh_offset;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, base + table.sh_offset + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_size > 0 &&
          ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL)
        out->globals.push_back({strings + symbol.st_name, symbol.st_size});
    }
  }
  return ImageError::kNone;
}

ImageError read_one(std::uint16_t kind, const unsigned char* data, Image* out) {
  if (kind == kFatbinElf) return read_elf(data, out);
  if (kind == kFatbinPtx) return read_ptx(reinterpret_cast<const char*>(data), out);
  return ImageError::kNotAnImage;
}

ImageError read_fatbin(const unsigned char* base, Image* out) {
  FatHeader header;
  std::memcpy(&header, base, sizeof header);
  const unsigned char* at = base + header.header_bytes;
  const unsigned char* end = at + header.payload_bytes;
  while (at + sizeof(FatEntry) <= end && out->kernels.empty()) {
    FatEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.header_bytes < sizeof entry) break;
    const unsigned char* body = at + entry.header_bytes;
    if ((entry.flags & kFatbinZstd) != 0) {
      out->opaque = true;
    } else if ((entry.flags & kFatbinLz4) != 0) {
      std::vector<unsigned char> plain(entry.unpacked_bytes + 1);
      if (entry.unpacked_bytes < (1ULL << 30) &&
          unpack_lz4(body, entry.packed_bytes, plain.data(), entry.unpacked_bytes)) {
        read_one(entry.kind, plain.data(), out);
      } else {
        out->opaque = true;
      }
    } else {
      read_one(entry.kind, body, out);
    }
    at = body + entry.bytes;
  }
  if (!out->kernels.empty()) out->opaque = false;
  return ImageError::kNone;
}

}  // namespace

ImageError read_image(const void* data, Image* out) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, data, sizeof magic);
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (magic == kFatbinWrapper) {
    void* inner = nullptr;
    std::memcpy(&inner, bytes + 8, sizeof inner);
    return read_image(inner, out);
  }
  if (magic == kFatbinMagic) return read_fatbin(bytes, out);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0) return read_elf(bytes, out);
  // PTX is text: an image is PTX when it begins with a printable character or white space (a comment or a directive).
  const char first = *static_cast<const char*>(data);
  if (first == '/' || first == '.' || first == '\n' || first == ' ' || first == '\t' ||
      first == '\r')
    return read_ptx(static_cast<const char*>(data), out);
  return ImageError::kNotAnImage;
}

std::uint64_t duration_in_name(const std::string& name) {
  std::size_t end = name.size();
  std::uint64_t unit = 0;
  if (name.ends_with("us")) {
    unit = 1000;
  } else if (name.ends_with("ms")) {
    unit = 1'000'000;
  } else if (name.ends_with("ns")) {
    unit = 1;
  }
  if (unit == 0) return 0;
  end -= 2;
  std::size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  if (begin == end || begin == 0 || name[begin - 1] != '_' || end - begin > 9) return 0;
  return std::stoull(name.substr(begin, end - begin)) * unit;
}

}  // namespace carve::sim::cu
