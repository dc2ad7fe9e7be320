#include "codec/loader_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

namespace carve::codec {
namespace {

constexpr std::string_view kOldCacheMagic = "ld.so-1.7.0";
constexpr std::string_view kCacheMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kOldHeader = 16;  // magic, padding, number of entries
constexpr std::size_t kOldEntry = 12;
constexpr std::size_t kCacheHeader = 48;
constexpr std::size_t kCacheEntry = 24;
constexpr std::size_t kCacheSection = 16;
constexpr std::uint8_t kLittleEndian = 2;
constexpr std::uint32_t kExtensionMagic = 0xEAA42174;
constexpr std::uint32_t kGenerator = 0;    // tag of a section: text
constexpr std::uint32_t kCapabilities = 1;  // offsets of names of glibc-hwcaps folders
constexpr std::uint32_t kArchitecture = 0xFF00;
#if defined(__aarch64__)
constexpr std::uint32_t kLibraryFlags = 0x0A03;  // FLAG_AARCH64_LIB64 | FLAG_ELF_LIBC6
#else
constexpr std::uint32_t kLibraryFlags = 0x0303;  // FLAG_X8664_LIB64 | FLAG_ELF_LIBC6
#endif

struct CacheRow {
  std::uint32_t flags = 0;
  std::string_view name;
  std::string_view path;
  std::uint32_t os_version = 0;
  std::uint64_t capabilities = 0;  // bits, or an index into LoaderCache::capabilities
};

struct LoaderCache {
  std::uint8_t byte_order = kLittleEndian;
  std::vector<CacheRow> rows;
  std::string_view generator;
  std::vector<std::string_view> capabilities;
};

tl::unexpected<Error> no_cache(const char* what) {
  return fail(Code::kInvalidArgument, std::string("loader cache: ") + what);
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

Result<std::string_view> text_at(std::string_view bytes, std::size_t at) {
  const auto end = at < bytes.size() ? bytes.find('\0', at) : std::string_view::npos;
  if (end == std::string_view::npos) return no_cache("a text outside the file");
  return bytes.substr(at, end - at);
}

/// The part in the new format: `ldconfig` before glibc 2.32 wrote both formats, one after the other.
Result<std::string_view> new_format(std::string_view file) {
  if (file.substr(0, kOldCacheMagic.size()) == kOldCacheMagic) {
    if (file.size() < kOldHeader) return no_cache("truncated");
    const std::size_t end = kOldHeader + kOldEntry * std::size_t{number_at<std::uint32_t>(file, 12)};
    const std::size_t begin = (end + 7) / 8 * 8;
    if (begin > file.size()) return no_cache("truncated");
    file.remove_prefix(begin);
  }
  if (file.size() < kCacheHeader || file.substr(0, kCacheMagic.size()) != kCacheMagic) {
    return no_cache("an unknown format");
  }
  return file;
}

Result<void> read_extension(std::string_view bytes, LoaderCache* cache) {
  const std::size_t begin = number_at<std::uint32_t>(bytes, 32);
  if (begin == 0) return {};
  if (begin % 4 != 0 || begin > bytes.size() || bytes.size() - begin < 8) return no_cache("an extension outside it");
  if (number_at<std::uint32_t>(bytes, begin) != kExtensionMagic) return no_cache("an unknown extension");
  const std::size_t count = number_at<std::uint32_t>(bytes, begin + 4);
  if ((bytes.size() - begin - 8) / kCacheSection < count) return no_cache("a truncated extension");
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = begin + 8 + i * kCacheSection;
    const auto tag = number_at<std::uint32_t>(bytes, at);
    const std::size_t from = number_at<std::uint32_t>(bytes, at + 8);
    const std::size_t size = number_at<std::uint32_t>(bytes, at + 12);
    if (from > bytes.size() || bytes.size() - from < size) return no_cache("a section outside the file");
    if (tag == kGenerator) cache->generator = bytes.substr(from, size);
    if (tag != kCapabilities) continue;  // other sections are newer than this code and are not written
    for (std::size_t k = 0; k + 4 <= size; k += 4) {
      CARVE_TRY(const auto name, text_at(bytes, number_at<std::uint32_t>(bytes, from + k)));
      cache->capabilities.push_back(name);
    }
  }
  return {};
}

Result<LoaderCache> read_cache(std::string_view file) {
  LoaderCache cache;
  if (file.empty()) return cache;
  CARVE_TRY(const auto bytes, new_format(file));
  cache.byte_order = static_cast<std::uint8_t>(bytes[28]);
  if (cache.byte_order != 0 && cache.byte_order != kLittleEndian) return no_cache("another byte order");
  const std::size_t count = number_at<std::uint32_t>(bytes, 20);
  if ((bytes.size() - kCacheHeader) / kCacheEntry < count) return no_cache("fewer entries than its header states");
  cache.rows.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = kCacheHeader + i * kCacheEntry;
    CacheRow row;
    row.flags = number_at<std::uint32_t>(bytes, at);
    CARVE_TRY(row.name, text_at(bytes, number_at<std::uint32_t>(bytes, at + 4)));
    CARVE_TRY(row.path, text_at(bytes, number_at<std::uint32_t>(bytes, at + 8)));
    row.os_version = number_at<std::uint32_t>(bytes, at + 12);
    row.capabilities = number_at<std::uint64_t>(bytes, at + 16);
    cache.rows.push_back(row);
  }
  CARVE_TRY_VOID(read_extension(bytes, &cache));
  return cache;
}

/// The file's bytes after its entries, each text once.
class TextTable {
 public:
  explicit TextTable(std::size_t begin) : begin_(begin) {}
  std::uint32_t offset_of(std::string_view text) {
    const auto [there, fresh] = known_.emplace(text, static_cast<std::uint32_t>(begin_ + bytes_.size()));
    if (fresh) bytes_.append(text).push_back('\0');
    return there->second;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::size_t begin_;
  std::string bytes_;
  std::map<std::string_view, std::uint32_t> known_;
};

template <class Number>
void append_number(std::string* out, Number number) {
  out->append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_section(std::string* out, std::uint32_t tag, std::size_t from, std::size_t size) {
  append_number(out, tag);
  append_number(out, std::uint32_t{0});
  append_number(out, static_cast<std::uint32_t>(from));
  append_number(out, static_cast<std::uint32_t>(size));
}

std::string extension_of(const LoaderCache& cache, const std::vector<std::uint32_t>& capabilities, std::size_t begin) {
  const std::uint32_t count = (cache.generator.empty() ? 0 : 1) + (capabilities.empty() ? 0 : 1);
  std::string out;
  append_number(&out, kExtensionMagic);
  append_number(&out, count);
  std::size_t from = begin + 8 + count * kCacheSection;
  if (!capabilities.empty()) {
    append_section(&out, kCapabilities, from, 4 * capabilities.size());
    from += 4 * capabilities.size();
  }
  if (!cache.generator.empty()) append_section(&out, kGenerator, from, cache.generator.size());
  for (const auto offset : capabilities) append_number(&out, offset);
  out += cache.generator;
  return out;
}

std::string bytes_of(const LoaderCache& cache) {
  const std::size_t texts_begin = kCacheHeader + kCacheEntry * cache.rows.size();
  TextTable texts(texts_begin);
  std::string entries;
  for (const auto& row : cache.rows) {
    append_number(&entries, row.flags);
    append_number(&entries, texts.offset_of(row.name));
    append_number(&entries, texts.offset_of(row.path));
    append_number(&entries, row.os_version);
    append_number(&entries, row.capabilities);
  }
  std::vector<std::uint32_t> capabilities;
  for (const auto name : cache.capabilities) capabilities.push_back(texts.offset_of(name));
  const bool extended = !cache.generator.empty() || !capabilities.empty();
  const std::size_t end = (texts_begin + texts.bytes().size() + 3) / 4 * 4;
  std::string out(kCacheMagic);
  append_number(&out, static_cast<std::uint32_t>(cache.rows.size()));
  append_number(&out, static_cast<std::uint32_t>(texts.bytes().size()));
  append_number(&out, cache.byte_order);
  out.append(3, '\0');
  append_number(&out, extended ? static_cast<std::uint32_t>(end) : std::uint32_t{0});
  out.append(kCacheHeader - out.size(), '\0');
  out += entries;
  out += texts.bytes();
  if (!extended) return out;
  out.append(end - out.size(), '\0');
  out += extension_of(cache, capabilities, end);
  return out;
}

bool is_of_this_machine(const CacheRow& row) { return (row.flags & kArchitecture) == (kLibraryFlags & kArchitecture); }

bool is_name(const std::string& text) { return !text.empty() && text.find('\0') == std::string::npos; }

bool is_numeral(char c) { return c >= '0' && c <= '9'; }

std::uint64_t take_number(std::string_view* text) {
  std::uint64_t value = 0;  // with more digits than fit, the order is arbitrary but stable
  while (!text->empty() && is_numeral(text->front())) {
    value = value * 10 + static_cast<std::uint64_t>(text->front() - '0');
    text->remove_prefix(1);
  }
  return value;
}

}  // namespace

int compare_library_names(std::string_view a, std::string_view b) {
  while (!a.empty()) {
    const bool digits = is_numeral(a.front());
    if (b.empty()) return 1;
    if (digits != is_numeral(b.front())) return digits ? 1 : -1;
    if (digits) {
      const auto left = take_number(&a);
      const auto right = take_number(&b);
      if (left != right) return left < right ? -1 : 1;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front() ? -1 : 1;
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return b.empty() ? 0 : -1;
}

Result<std::vector<LoaderEntry>> loader_entries(std::string_view cache) {
  CARVE_TRY(const auto parsed, read_cache(cache));
  std::vector<LoaderEntry> entries;
  for (const auto& row : parsed.rows) {
    if (is_of_this_machine(row)) entries.push_back({std::string(row.name), std::string(row.path)});
  }
  return entries;
}

Result<std::string> with_libraries(std::string_view cache, const std::vector<LoaderEntry>& libraries) {
  CARVE_TRY(auto parsed, read_cache(cache));
  for (const auto& library : libraries) {
    if (!is_name(library.name) || !is_name(library.path)) return no_cache("a library without a name");
    std::erase_if(parsed.rows,
                  [&](const CacheRow& row) { return row.name == library.name && is_of_this_machine(row); });
    // The loader uses a binary search over a list in descending order of names.
    const auto place = std::find_if(parsed.rows.begin(), parsed.rows.end(), [&](const CacheRow& row) {
      return compare_library_names(row.name, library.name) <= 0;
    });
    parsed.rows.insert(place, CacheRow{kLibraryFlags, library.name, library.path, 0, 0});
  }
  return bytes_of(parsed);
}

}  // namespace carve::codec
