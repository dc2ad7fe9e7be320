#include "sim/cuda/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "sim/cuda/unpack.h"

namespace carve::sim::cu {
namespace {

Image read(const std::string& text) {
  Image image;
  EXPECT_EQ(read_image(text.c_str(), &image), ImageError::kNone);
  return image;
}

constexpr char kHead[] = ".version 8.0\n.target sm_90\n.address_size 64\n";

TEST(Ptx, ReadsEntriesAndTheirParameters) {
  const Image image = read(std::string(kHead) + R"(
.visible .entry first(
  .param .u64 .ptr .global .align 4 a,
  .param .u32 n,
  .param .f64 x,
  .param .align 16 .b8 s[24],
  .param .u8 flag
)
{ ret; }
.entry second() { ret; }
.visible .entry third
{ ret; }
)");
  ASSERT_EQ(image.kernels.size(), 3U);
  EXPECT_EQ(image.kernels[0].name, "first");
  const auto& p = image.kernels[0].parameters;
  ASSERT_EQ(p.size(), 5U);
  const std::uint32_t offsets[] = {0, 8, 16, 32, 56}, sizes[] = {8, 4, 8, 24, 1};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(p[i].offset, offsets[i]) << i;
    EXPECT_EQ(p[i].size, sizes[i]) << i;
  }
  EXPECT_EQ(image.kernels[1].name, "second");
  EXPECT_TRUE(image.kernels[1].parameters.empty());
  EXPECT_EQ(image.kernels[2].name, "third");
}

TEST(Ptx, DurationsBelongToTheirOwnEntry) {
  const Image image = read(std::string(kHead) + R"(
// carve.duration_us=500
.visible .entry before() { ret; }
.visible .entry none() { ret; }
.visible .entry inside() {
  // carve.duration_us=7
  ret; }
)");
  ASSERT_EQ(image.kernels.size(), 3U);
  EXPECT_EQ(image.kernels[0].duration_ns, 500'000U);
  EXPECT_EQ(image.kernels[1].duration_ns, 0U);
  EXPECT_EQ(image.kernels[2].duration_ns, 7'000U);
}

TEST(Ptx, Globals) {
  const Image image = read(std::string(kHead) + R"(
.global .align 4 .b8 table[64];
.visible .global .align 8 .u64 counter = 5;
.const .f32 pi = 3.0;
.extern .global .u32 elsewhere;
.visible .entry k() { .reg .u32 %r1; ld.global.u32 %r1, [table]; ret; }
)");
  ASSERT_EQ(image.globals.size(), 3U);
  EXPECT_EQ(image.globals[0].name, "table");
  EXPECT_EQ(image.globals[0].size, 64U);
  EXPECT_EQ(image.globals[1].size, 8U);
  EXPECT_EQ(image.globals[2].name, "pi");
}

TEST(Image, RefusesUnknownFormats) {
  Image image;
  EXPECT_EQ(read_image("\x01\x02\x03\x04 something", &image), ImageError::kNotAnImage);
  EXPECT_EQ(read_image("// a comment and nothing else", &image), ImageError::kBadPtx);
}

TEST(Image, ReadsTruncatedPtxSafely) {
  const std::string whole = std::string(kHead) +
                            "// carve.duration_us=9\n.visible .entry k(.param .align 8 .b8 a[16], "
                            ".param .u32 b)\n{ ret; }\n.global .u32 g;\n";
  std::size_t kernels = 0, globals = 0;
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    Image image;
    if (read_image(whole.substr(0, n).c_str(), &image) != ImageError::kNone) continue;
    ASSERT_LE(image.kernels.size(), 1U) << n;
    ASSERT_LE(image.globals.size(), 1U) << n;
    kernels = image.kernels.size();
    globals = image.globals.size();
  }
  EXPECT_EQ(kernels, 1U) << "in the whole text";
  EXPECT_EQ(globals, 1U);
}

TEST(Names, NamesContainDurations) {
  EXPECT_EQ(duration_in_name("carve_spin_500us"), 500'000U);
  EXPECT_EQ(duration_in_name("x_2ms"), 2'000'000U);
  EXPECT_EQ(duration_in_name("x_800ns"), 800U);
  EXPECT_EQ(duration_in_name("carve_spin_0us"), 0U);
  for (const char* none : {"", "us", "_us", "500us", "campus", "bonus_x12us", "a_99999999999us"})
    EXPECT_EQ(duration_in_name(none), 0U) << none;
}

TEST(Lz4, UnpacksLiteralsMatchesAndOverlaps) {
  // "abcabcabcabc" + "xyzzy": 3 literals, a match of 9 at distance 3, 5 literals.
  const unsigned char packed[] = {0x35, 'a', 'b', 'c', 3, 0, 0x50, 'x', 'y', 'z', 'z', 'y'};
  unsigned char out[17];
  ASSERT_TRUE(unpack_lz4(packed, sizeof packed, out, sizeof out));
  EXPECT_EQ(std::memcmp(out, "abcabcabcabcxyzzy", 17), 0);
  EXPECT_FALSE(unpack_lz4(packed, sizeof packed, out, 16));
  EXPECT_FALSE(unpack_lz4(packed, 4, out, sizeof out));
}

TEST(Lz4, RandomInputNeverLeavesItsBuffers) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    // The bytes behind each buffer must not change.
    constexpr std::size_t kBehind = 64;
    const std::size_t in_bytes = random() % 40, out_bytes = random() % 200;
    std::vector<unsigned char> in(in_bytes + kBehind), out(out_bytes + kBehind, 0xa5);
    // Small bytes are frequent, because matches within the data already written are made of them.
    for (unsigned char& byte : in) byte = static_cast<unsigned char>(random() % (random() % 3 == 0 ? 256 : 4));
    const auto before = in;
    const bool whole = unpack_lz4(in.data(), in_bytes, out.data(), out_bytes);
    ASSERT_EQ(in, before) << round;
    ASSERT_TRUE(std::all_of(out.end() - kBehind, out.end(), [](auto byte) { return byte == 0xa5; })) << round;
    // Bytes behind the input are not read: with other bytes there the result is the same.
    std::fill(in.begin() + static_cast<std::ptrdiff_t>(in_bytes), in.end(), 0);
    std::vector<unsigned char> again(out_bytes + kBehind, 0xa5);
    ASSERT_EQ(unpack_lz4(in.data(), in_bytes, again.data(), out_bytes), whole) << round;
    ASSERT_EQ(again, out) << round;
  }
}

}  // namespace
}  // namespace carve::sim::cu
