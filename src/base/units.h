#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <string>

// The two quantities of Carve, as types, so that the compiler tells them apart from each other and from plain numbers.
// Arithmetic saturates: a sum that overflows becomes the largest value, and a negative difference becomes zero. This
// header does not parse text; codec/quantity.h does.
namespace carve {

/// Bytes of device memory.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t count) : count_(count) {}
  static constexpr Bytes max() { return Bytes(std::numeric_limits<std::uint64_t>::max()); }
  static constexpr Bytes kib(std::uint64_t n) { return Bytes(n) * (1ULL << 10); }
  static constexpr Bytes mib(std::uint64_t n) { return Bytes(n) * (1ULL << 20); }
  static constexpr Bytes gib(std::uint64_t n) { return Bytes(n) * (1ULL << 30); }

  [[nodiscard]] constexpr std::uint64_t count() const { return count_; }
  /// The number of whole MiB.
  [[nodiscard]] constexpr std::uint64_t whole_mib() const { return count_ >> 20; }
  /// In MiB, with the rest as a fraction: for metrics that count in MiB.
  [[nodiscard]] constexpr double in_mib() const { return static_cast<double>(count_) / (1ULL << 20); }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

  friend constexpr Bytes operator+(Bytes a, Bytes b) {
    return a.count_ > max().count_ - b.count_ ? max() : Bytes(a.count_ + b.count_);
  }
  friend constexpr Bytes operator-(Bytes a, Bytes b) {
    return a.count_ < b.count_ ? Bytes() : Bytes(a.count_ - b.count_);
  }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t n) {
    return n != 0 && a.count_ > max().count_ / n ? max() : Bytes(a.count_ * n);
  }
  constexpr Bytes& operator+=(Bytes b) { return *this = *this + b; }
  constexpr Bytes& operator-=(Bytes b) { return *this = *this - b; }

  /// `percent` (0..100) of these bytes, rounded down: the shares of a card never add up to more than the card.
  [[nodiscard]] constexpr Bytes percent(std::uint32_t percent) const {
    return Bytes(count_ / 100 * percent + count_ % 100 * percent / 100);
  }

 private:
  std::uint64_t count_ = 0;
};

/// A share of one card's compute in hundredths (per cent): 100 is the whole card, 0 is no guarantee. Sums of shares use
/// this type too, so values above 100 exist; validate() checks the share of a request.
class CoreShare {
 public:
  constexpr CoreShare() = default;
  constexpr explicit CoreShare(std::uint32_t hundredths) : hundredths_(hundredths) {}
  static constexpr CoreShare whole() { return CoreShare(100); }

  [[nodiscard]] constexpr std::uint32_t hundredths() const { return hundredths_; }
  friend constexpr auto operator<=>(CoreShare, CoreShare) = default;

  friend constexpr CoreShare operator+(CoreShare a, CoreShare b) {
    constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
    return CoreShare(a.hundredths_ > kMax - b.hundredths_ ? kMax : a.hundredths_ + b.hundredths_);
  }
  friend constexpr CoreShare operator-(CoreShare a, CoreShare b) {
    return CoreShare(a.hundredths_ < b.hundredths_ ? 0 : a.hundredths_ - b.hundredths_);
  }
  constexpr CoreShare& operator+=(CoreShare b) { return *this = *this + b; }
  constexpr CoreShare& operator-=(CoreShare b) { return *this = *this - b; }

 private:
  std::uint32_t hundredths_ = 0;
};

/// For messages: "4 GiB", "3.2 GiB", "512 MiB", "17 bytes". One decimal, rounded down, so that free memory is never
/// overstated.
[[nodiscard]] std::string to_human(Bytes bytes);

/// The shortest exact spelling that codec/quantity.h parses: "4Gi", "1536Mi", "4294967297".
[[nodiscard]] std::string to_canonical(Bytes bytes);

/// "3.2 GiB < 4 GiB", for messages; in plain bytes where the two would read the same.
[[nodiscard]] std::string human_less(Bytes smaller, Bytes larger);

}  // namespace carve
