#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/decisions.h"
#include "base/testing/printed.h"

// Scenes on record (decisions.h) that are functions from pseudorandom numbers to a text.
namespace carve {

/// Compares the sum, in hex digits. A failure names the scene.
inline void expect_on_record(const Decisions& decisions, const std::string& scene, const std::string& sum) {
  EXPECT_EQ(fmt::format("{:016x}", decisions.sum()), sum) << scene << ": other results; see base/testing/decisions.h";
}

/// Calls `one(numbers)` this many times and compares the sum of the texts.
template <class One>
void on_record(const char* scene, const char* sum, int times, const One& one) {
  Numbers numbers(1);
  Decisions decisions(scene);
  for (int i = 0; i < times; ++i) decisions.add(one(numbers));
  expect_on_record(decisions, scene, sum);
}

/// The default values of all members.
template <class... Ts>
[[nodiscard]] std::string defaults() {
  return (printed(Ts{}) + ...);
}

}  // namespace carve
