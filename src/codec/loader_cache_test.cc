#include "codec/loader_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <rapidcheck.h>

namespace carve::codec {
namespace {

const LoaderEntry kCuda = {"libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"};
const LoaderEntry kNvml = {"libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"};

template <class Number>
Number at(const std::string& bytes, std::size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

template <class Number>
void set(std::string* bytes, std::size_t offset, Number number) {
  std::memcpy(bytes->data() + offset, &number, sizeof number);
}

std::string empty_cache() { return *with_libraries("", {}); }

/// In the form of `ldconfig` of glibc before 2.32: the old format first, with the same number of entries.
std::string with_old_format(const std::string& cache, std::uint32_t entries) {
  std::string old = "ld.so-1.7.0";
  old.append(1, '\0');
  old.append(reinterpret_cast<const char*>(&entries), sizeof entries);
  old.append(entries * std::size_t{12}, 'x');
  old.append((8 - old.size() % 8) % 8, '\0');
  return old + cache;
}

TEST(LoaderCache, ANewCacheHasTheAddedLibraries) {
  const auto made = with_libraries("", {kCuda, kNvml});
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(made->substr(0, 20), "glibc-ld.so.cache1.1");
  EXPECT_EQ(at<std::uint32_t>(*made, 20), 2U);
  EXPECT_EQ(*loader_entries(*made), (std::vector<LoaderEntry>{kNvml, kCuda}));
}

TEST(LoaderCache, HasTheOrderOfTheLoadersSearch) {
  EXPECT_LT(compare_library_names("libcuda.so.9", "libcuda.so.10"), 0);
  EXPECT_GT(compare_library_names("libcuda.so.1", "libcuda.so"), 0);
  EXPECT_GT(compare_library_names("lib1", "liba"), 0) << "a number is greater than a letter";
  EXPECT_EQ(compare_library_names("libc.so.6", "libc.so.06"), 0);
  const auto made = with_libraries("", {{"libz.so.1", "/z"}, {"liba.so.10", "/ten"}, {"liba.so.9", "/nine"}});
  EXPECT_EQ(*loader_entries(*made),
            (std::vector<LoaderEntry>{{"libz.so.1", "/z"}, {"liba.so.10", "/ten"}, {"liba.so.9", "/nine"}}));
}

TEST(LoaderCache, ReplacesOnlyTheImagesOwnEntry) {
  const LoaderEntry compat = {"libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"};
  auto cache = *with_libraries("", {compat, {"libc.so.6", "/lib/libc"}});
  // A 32-bit entry of the same name stays.
  auto both = *with_libraries(cache, {{"libcuda.so.2", "/i386/libcuda.so.1"}});
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t entry = 48 + 24 * i;
    if (std::string(both.c_str() + at<std::uint32_t>(both, entry + 4)) != "libcuda.so.2") continue;
    set<std::uint32_t>(&both, entry, 0x0003);
    both[at<std::uint32_t>(both, entry + 4) + std::strlen("libcuda.so.")] = '1';
  }
  const auto repaired = with_libraries(both, {kCuda});
  ASSERT_TRUE(repaired) << repaired.error().what;
  EXPECT_EQ(*loader_entries(*repaired), (std::vector<LoaderEntry>{kCuda, {"libc.so.6", "/lib/libc"}}));
  EXPECT_EQ(at<std::uint32_t>(*repaired, 20), 3U);
  EXPECT_NE(repaired->find("/i386/libcuda.so.1"), std::string::npos);
  EXPECT_EQ(repaired->find("compat"), std::string::npos);
}

TEST(LoaderCache, ASecondTimeChangesNothing) {
  const auto once = with_libraries(empty_cache(), {kCuda, kNvml});
  EXPECT_EQ(*with_libraries(*once, {kCuda, kNvml}), *once);
  EXPECT_EQ(*with_libraries(*once, {kNvml, kCuda}), *once);
}

TEST(LoaderCache, TheFormatBeforeGlibc232IsRead) {
  const auto cache = *with_libraries("", {{"libc.so.6", "/lib/libc"}});
  for (const std::uint32_t entries : {0U, 1U, 2U, 7U}) {
    const auto made = with_libraries(with_old_format(cache, entries), {kCuda});
    ASSERT_TRUE(made) << entries << ": " << made.error().what;
    EXPECT_EQ(*loader_entries(*made), (std::vector<LoaderEntry>{kCuda, {"libc.so.6", "/lib/libc"}}));
  }
}

TEST(LoaderCache, CapabilitiesAndGeneratorStay) {
  // An entry in glibc-hwcaps/x86-64-v3, and the generator.
  auto cache = *with_libraries("", {{"libm.so.6", "/hwcaps/libm"}});
  const std::uint64_t indexed = (1ULL << 62) | 0;
  set<std::uint64_t>(&cache, 48 + 16, indexed);
  const auto name = static_cast<std::uint32_t>(cache.size());
  cache += std::string("x86-64-v3") + '\0';
  const auto other_name = static_cast<std::uint32_t>(cache.size());
  cache += std::string("x86-64-v4") + '\0';
  cache.append((4 - cache.size() % 4) % 4, '\0');
  const auto extension = static_cast<std::uint32_t>(cache.size());
  set<std::uint32_t>(&cache, 32, extension);
  const std::string generator = "ldconfig (test) 2.36";
  const std::uint32_t words[] = {0xEAA42174, 2, 0, 0, extension + 48, static_cast<std::uint32_t>(generator.size()),
                                 1,          0, extension + 40, 8,    name, other_name};
  cache.append(reinterpret_cast<const char*>(words), sizeof words);
  cache += generator;
  const auto made = with_libraries(cache, {kCuda});
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_NE(made->find(generator), std::string::npos);
  EXPECT_EQ(at<std::uint32_t>(*made, 32) % 4, 0U);
  ASSERT_STREQ(made->c_str() + at<std::uint32_t>(*made, 48 + 4), "libm.so.6");
  EXPECT_EQ(at<std::uint64_t>(*made, 48 + 16), indexed);
  // Parse the result again: the name of the capability is at the offset in the section.
  EXPECT_EQ(*with_libraries(*made, {kCuda}), *made);
  for (const char* capability : {"x86-64-v3", "x86-64-v4"})
    EXPECT_NE(made->find(std::string(capability) + '\0'), std::string::npos) << capability;
}

TEST(LoaderCache, AFileThatIsNotACacheIsRefused) {
  const auto cache = *with_libraries("", {kCuda});
  for (const std::string& bytes : {std::string("x"), std::string(60, '\0'), cache.substr(0, 47), cache.substr(0, 71),
                                   cache.substr(0, cache.size() - 1), with_old_format("", 1), with_old_format("", 0)}) {
    EXPECT_FALSE(with_libraries(bytes, {kCuda})) << bytes.size();
    EXPECT_FALSE(loader_entries(bytes)) << bytes.size();
  }
  auto lying = cache;
  set<std::uint32_t>(&lying, 20, 0xFFFFFFFF);
  EXPECT_FALSE(loader_entries(lying));
  lying = cache;
  set<std::uint32_t>(&lying, 32, 0xFFFFFFFC);
  EXPECT_FALSE(loader_entries(lying));
  lying = cache;
  lying[28] = 3;  // big-endian
  EXPECT_FALSE(loader_entries(lying));
  EXPECT_FALSE(with_libraries(cache, {{"", "/x"}}));
  EXPECT_FALSE(with_libraries(cache, {{std::string("a\0b", 3), "/x"}}));
}

TEST(LoaderCache, TheLoadersSearchFindsEveryName) {
  EXPECT_TRUE(rc::check("binary search as elf/dl-cache.c does it", [] {
    const auto numbers = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40));
    std::vector<LoaderEntry> libraries;
    for (const int n : numbers) {
      libraries.push_back({"lib" + std::string(1, static_cast<char>('a' + n % 5)) + ".so." + std::to_string(n),
                           "/lib/" + std::to_string(n)});
    }
    const auto cache = with_libraries("", libraries);
    RC_ASSERT(cache.has_value());
    const auto entries = *loader_entries(*cache);
    for (const auto& wanted : libraries) {
      int left = 0;
      int right = static_cast<int>(entries.size()) - 1;
      bool found = false;
      while (left <= right && !found) {
        const int middle = (left + right) / 2;
        const int order = compare_library_names(wanted.name, entries[static_cast<std::size_t>(middle)].name);
        found = order == 0;
        if (order < 0) left = middle + 1;
        if (order > 0) right = middle - 1;
      }
      RC_ASSERT(found);
    }
  }));
}

/// A file in the new format, word by word: what the loader finds at each offset.
std::string words(const std::vector<std::uint32_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size()};
}

TEST(LoaderCache, IsWrittenExactlyAsTheLoaderReadsIt) {
#if defined(__aarch64__)
  constexpr std::uint32_t kFlags = 0x0A03;
#else
  constexpr std::uint32_t kFlags = 0x0303;
#endif
  const auto made = with_libraries("", {{"liba.so", "/a"}, {"libb.so.1", "/bb"}});
  ASSERT_TRUE(made) << made.error().what;
  const std::uint32_t texts = 48 + 2 * 24;
  const std::string names = std::string("libb.so.1") + '\0' + "/bb" + '\0' + "liba.so" + '\0' + "/a" + '\0';
  EXPECT_EQ(*made, "glibc-ld.so.cache1.1" +
                       words({2, static_cast<std::uint32_t>(names.size()), 2, 0, 0, 0, 0,           // the header
                              kFlags, texts, texts + 10, 0, 0, 0,                                   // libb.so.1
                              kFlags, texts + 14, texts + 22, 0, 0, 0}) +                           // liba.so
                       names);
}

TEST(LoaderCache, AnotherByteOrderIsRefused) {
  auto cache = *with_libraries("", {{"libm.so", "/mm"}});
  for (const int order : {0, 1, 2, 3}) {  // 0: not stated, 1: big-endian, 2: little-endian
    cache[28] = static_cast<char>(order);
    EXPECT_EQ(loader_entries(cache).has_value(), order % 2 == 0) << order;
  }
}

/// A cache with one library and texts that end at kExtensionAt, followed by an extension of these words.
constexpr std::uint32_t kExtensionAt = 48 + 24 + 12;
std::string with_extension(const std::vector<std::uint32_t>& extension, const std::string& behind = "") {
  auto cache = *with_libraries("", {{"libm.so", "/mm"}});
  EXPECT_EQ(cache.size(), kExtensionAt);
  set<std::uint32_t>(&cache, 32, kExtensionAt);
  return cache + words(extension) + behind;
}

TEST(LoaderCache, AnExtensionFollowsTheTextsAtAMultipleOfFour) {
  constexpr std::uint32_t kMagic = 0xEAA42174;
  const std::string behind = words({kExtensionAt + 8 + 32 + 4 + 4}) + "made" + "cpu" + '\0';
  const auto cache = with_extension({kMagic, 2, 1, 0, kExtensionAt + 40, 4, 0, 0, kExtensionAt + 44, 4}, behind);
  ASSERT_TRUE(loader_entries(cache));
  const auto made = with_libraries(cache, {{"libn.so", "/n"}});
  ASSERT_TRUE(made) << made.error().what;
  // libn.so /n libm.so /mm cpu: 8 + 3 + 8 + 4 + 4 bytes, then one padding byte.
  const std::uint32_t texts = 48 + 2 * 24;
  const std::uint32_t begin = texts + 28;
  EXPECT_EQ(at<std::uint32_t>(*made, 24), 27U);
  EXPECT_EQ(at<std::uint32_t>(*made, 32), begin);
  EXPECT_EQ(made->substr(begin), words({kMagic, 2, 1, 0, begin + 40, 4, 0, 0, begin + 44, 4, texts + 23}) + "made");
  // Each of the two alone.
  const auto generator = with_libraries(with_extension({kMagic, 1, 0, 0, kExtensionAt + 24, 4}, "made"), {});
  ASSERT_TRUE(generator) << generator.error().what;
  EXPECT_EQ(generator->substr(kExtensionAt), words({kMagic, 1, 0, 0, kExtensionAt + 24, 4}) + "made");
  const auto names =
      with_libraries(with_extension({kMagic, 1, 1, 0, kExtensionAt + 24, 4}, words({kExtensionAt - 4})), {});
  ASSERT_TRUE(names) << names.error().what;
  EXPECT_EQ(names->substr(kExtensionAt), words({kMagic, 1, 1, 0, kExtensionAt + 24, 4, kExtensionAt - 4}));
}

TEST(LoaderCache, AnExtensionMustBeWithinTheFile) {
  constexpr std::uint32_t kMagic = 0xEAA42174;
  const auto reads = [](const std::string& cache) { return loader_entries(cache).has_value(); };
  EXPECT_TRUE(reads(with_extension({kMagic, 0}))) << "without any section";
  EXPECT_TRUE(reads(with_extension({kMagic, 1, 7, 0, 0, 4}))) << "a section of another kind";
  EXPECT_TRUE(reads(with_extension({kMagic, 1, 0, 0, kExtensionAt + 24, 0}))) << "an empty section at the end";
  EXPECT_FALSE(reads(with_extension({kMagic})));
  EXPECT_FALSE(reads(with_extension({kMagic, 0}).substr(0, kExtensionAt + 7)));
  EXPECT_FALSE(reads(with_extension({})));
  EXPECT_FALSE(reads(with_extension({kMagic + 1, 0}))) << "another extension";
  EXPECT_FALSE(reads(with_extension({kMagic, 1}))) << "a truncated section";
  EXPECT_FALSE(reads(with_extension({kMagic, 1, 7, 0, 0})));
  EXPECT_FALSE(reads(with_extension({kMagic, 1, 7, 0, 0, 4}).substr(0, kExtensionAt + 23)));
  EXPECT_FALSE(reads(with_extension({kMagic, 1, 0, 0, kExtensionAt + 25, 0}))) << "it begins after the end";
  EXPECT_FALSE(reads(with_extension({kMagic, 1, 0, 0, kExtensionAt + 20, 5}))) << "it ends after the end";
  EXPECT_FALSE(reads(with_extension({kMagic, 1, 1, 0, kExtensionAt + 24, 4}, words({kExtensionAt + 28}))))
      << "a name outside the file";
  for (const std::uint32_t off : {1U, 2U, 3U}) {
    auto cache = with_extension({kMagic, 0}, std::string(off, '\0'));
    cache.insert(kExtensionAt, std::string(off, '\0'));
    set<std::uint32_t>(&cache, 32, kExtensionAt + off);
    EXPECT_FALSE(reads(cache)) << "not at a multiple of four: " << off;
  }
}

TEST(LoaderCache, TheOldFormatMustEndWithinTheFile) {
  const std::string old = with_old_format("", 2);
  EXPECT_FALSE(loader_entries(old.substr(0, 15)));
  EXPECT_FALSE(loader_entries(old.substr(0, 16)));
  EXPECT_FALSE(loader_entries(old.substr(0, 39)));
  EXPECT_TRUE(loader_entries(old + empty_cache()));
}

TEST(LoaderCache, EveryDigitComparesAsANumber) {
  for (char digit = '0'; digit <= '9'; ++digit) {
    const std::string one(1, digit);
    EXPECT_GT(compare_library_names(one, ":"), 0) << one << ": a number is greater than any other character";
    EXPECT_LT(compare_library_names("a", one), 0) << one;
    EXPECT_EQ(compare_library_names("lib" + one, "lib0" + one), 0) << one;
    EXPECT_LT(compare_library_names("lib" + one + ".2", "lib" + one + ".3"), 0) << one;
    EXPECT_LT(compare_library_names("lib" + one, "lib1" + one), 0) << one;
  }
  EXPECT_LT(compare_library_names("lib/", "lib:"), 0) << "the characters next to the digits are not digits";
  EXPECT_GT(compare_library_names("libb", "liba"), 0);
  EXPECT_LT(compare_library_names("", "a"), 0);
  EXPECT_EQ(compare_library_names("", ""), 0);
}

TEST(LoaderCache, TheSystemsVersionOfAnEntryStays) {
  auto cache = *with_libraries("", {kCuda});
  set<std::uint32_t>(&cache, 48 + 12, 0x01020304);
  const auto made = with_libraries(cache, {});
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(*made, cache);
}

}  // namespace
}  // namespace carve::codec
