#include "core/model/classes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/model/card_mode.h"
#include "core/model/slice.h"

namespace carve {
namespace {

template <class E, std::size_t N>
using Words = std::array<std::pair<E, std::string_view>, N>;

constexpr Words<ShareClass, 4> kShareWords = {{{ShareClass::kFixed, "fixed"},
                                               {ShareClass::kBurst, "burst"},
                                               {ShareClass::kBestEffort, "besteffort"},
                                               {ShareClass::kNode, "node"}}};
constexpr Words<PriorityClass, 3> kPriorityWords = {{{PriorityClass::kOnline, "online"},
                                                     {PriorityClass::kStandard, "standard"},
                                                     {PriorityClass::kOffline, "offline"}}};
constexpr Words<CardMode, 3> kModeWords = {
    {{CardMode::kAny, "any"}, {CardMode::kShared, "shared"}, {CardMode::kExclusive, "exclusive"}}};
constexpr Words<OwnerKind, 3> kOwnerWords = {
    {{OwnerKind::kPod, "pod"}, {OwnerKind::kClaim, "claim"}, {OwnerKind::kLocal, "local"}}};

template <class E, std::size_t N>
std::string_view word_of(const Words<E, N>& words, E value) {
  for (const auto& [candidate, word] : words) {
    if (candidate == value) return word;
  }
  return "unknown";
}

template <class E, std::size_t N>
std::optional<E> value_of(const Words<E, N>& words, std::string_view word) {
  for (const auto& [value, candidate] : words) {
    if (candidate == word) return value;
  }
  return std::nullopt;
}

/// Used for every name of every slice of a node whenever something changes on the node.
constexpr std::array<bool, 256> in_names() {
  std::array<bool, 256> legal{};
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-"))
    legal[static_cast<unsigned char>(c)] = true;
  return legal;
}
constexpr auto kInNames = in_names();

}  // namespace

std::string_view to_string(ShareClass value) { return word_of(kShareWords, value); }
std::string_view to_string(PriorityClass value) { return word_of(kPriorityWords, value); }
std::string_view to_string(CardMode mode) { return word_of(kModeWords, mode); }
std::string_view to_string(OwnerKind kind) { return word_of(kOwnerWords, kind); }

std::optional<ShareClass> share_class_from(std::string_view word) {
  return value_of(kShareWords, word);
}
std::optional<CardMode> card_mode_from(std::string_view word) { return value_of(kModeWords, word); }
std::optional<PriorityClass> priority_class_from(std::string_view word) {
  return value_of(kPriorityWords, word);
}
std::optional<OwnerKind> owner_kind_from(std::string_view word) {
  return value_of(kOwnerWords, word);
}

bool valid_name(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return kInNames[c]; });
}

}  // namespace carve
