#include "base/units.h"

#include <array>
#include <string_view>

namespace carve {
namespace {

struct Step {
  int shift;
  std::string_view human;
  std::string_view canonical;
};
constexpr std::array<Step, 6> kSteps = {{
    {60, "EiB", "Ei"},
    {50, "PiB", "Pi"},
    {40, "TiB", "Ti"},
    {30, "GiB", "Gi"},
    {20, "MiB", "Mi"},
    {10, "KiB", "Ki"},
}};

}  // namespace

std::string to_human(Bytes bytes) {
  const std::uint64_t count = bytes.count();
  for (const Step& step : kSteps) {
    const std::uint64_t unit = 1ULL << step.shift;
    if (count < unit) continue;
    const std::uint64_t whole = count / unit;
    // The remainder is below 2^60, so ten of it fits.
    const std::uint64_t tenth = (count % unit) * 10 / unit;
    std::string text = std::to_string(whole);
    if (count % unit != 0) text += "." + std::to_string(tenth);
    return text + " " + std::string(step.human);
  }
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

std::string to_canonical(Bytes bytes) {
  const std::uint64_t count = bytes.count();
  for (const Step& step : kSteps) {
    const std::uint64_t unit = 1ULL << step.shift;
    if (count >= unit && count % unit == 0) {
      return std::to_string(count / unit) + std::string(step.canonical);
    }
  }
  return std::to_string(count);
}

std::string human_less(Bytes smaller, Bytes larger) {
  std::string left = to_human(smaller);
  std::string right = to_human(larger);
  if (left == right) {
    left = std::to_string(smaller.count()) + " bytes";
    right = std::to_string(larger.count()) + " bytes";
  }
  return left + " < " + right;
}

}  // namespace carve
