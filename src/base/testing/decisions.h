#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

// Decisions on record: a test plays a long pseudorandom scene, sums up every decision, and compares the sum with the
// one in its source, so it notices every other decision. A change that is meant to keep the decisions can be checked
// with it, and a change that is meant to alter them says so by a new sum. To see which decisions differ, write them
// with both versions and compare the files, which are named like the scenes:
//   CARVE_DECISIONS=FOLDER PROGRAM --gtest_filter='*Decisions*:Readers.*:Writers.*'
namespace carve {

/// Pseudorandom numbers that are the same on every platform (a linear congruential generator with Knuth's constants).
/// Compilers evaluate the operands of + and the arguments of a call in different orders, so only one of them may draw.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 2 + 1) {}

  /// 0 <= result < bound.
  std::uint64_t below(std::uint64_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33U) % bound;
  }
  bool one_of(std::uint64_t many) { return below(many) == 0; }

 private:
  std::uint64_t state_;
};

/// The sum of all decisions of one scene.
class Decisions {
 public:
  /// `scene` is the name of the file that CARVE_DECISIONS asks for.
  explicit Decisions(const std::string& scene) {
    if (const char* folder = std::getenv("CARVE_DECISIONS")) out_.open(std::string(folder) + "/" + scene);
  }

  /// Adds one decision, a row of the file.
  void add(std::initializer_list<std::uint64_t> words) {
    for (const std::uint64_t word : words) {
      sum_ = (sum_ ^ word) * 0x100000001b3ULL;  // FNV-1a, by words instead of bytes
      if (out_.is_open()) out_ << word << ' ';
    }
    if (out_.is_open()) out_ << '\n';
  }

  /// Adds a decision that is a text of one line.
  void add(std::string_view text) {
    for (const char letter : text) sum_ = (sum_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
    if (out_.is_open()) out_ << text << '\n';
  }

  [[nodiscard]] std::uint64_t sum() const { return sum_; }

 private:
  std::ofstream out_;
  std::uint64_t sum_ = 0xcbf29ce484222325ULL;
};

}  // namespace carve
