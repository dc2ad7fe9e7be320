#include "codec/node/card_modes.h"

#include <fmt/format.h>

#include <optional>

#include "codec/node/card_statements.h"

namespace carve::codec {
namespace {

const std::string* text_under(const NodeTexts& texts, std::string_view key) {
  const auto found = texts.find(std::string(key));
  return found == texts.end() ? nullptr : &found->second;
}

/// The modes of the other systems that have a meaning here. Others (mps, mig, topology) state no mode of Carve.
std::optional<CardMode> foreign_mode(const NodeTexts& labels) {
  if (const auto* word = text_under(labels, kAckSchedule)) {
    if (*word == "default") return CardMode::kExclusive;
    if (*word == "cgpu" || *word == "core_mem" || *word == "share") return CardMode::kShared;
  }
  if (const auto* word = text_under(labels, kRancherType)) {
    if (*word == "default") return CardMode::kExclusive;
    if (*word == kRancherShared) return CardMode::kShared;
  }
  return std::nullopt;
}

void refuse_mode(std::string_view where, std::string_view value, std::string* refused) {
  *refused += fmt::format("{}{}: \"{}\" is not a mode; legal are {}", refused->empty() ? "" : "; ", where,
                          value.substr(0, 64), kCardModeWords);
}

}  // namespace

bool is_shared_by_rancher(const NodeTexts& labels) {
  const auto* word = text_under(labels, kRancherType);
  return word != nullptr && *word == kRancherShared;
}

CardMode CardModes::of(const CardId& card, std::size_t index) const {
  CardMode mode = all;
  for (const auto& [name, stated] : cards) {
    if (is_card_called(name, card, index)) mode = stated;
  }
  return mode;
}

CardModes card_modes_of(const NodeTexts& labels, const NodeTexts& annotations) {
  CardModes modes;
  const auto* word = text_under(labels, kCardMode);
  const auto own = word == nullptr ? std::nullopt : card_mode_from(*word);
  if (word != nullptr && !own) refuse_mode(fmt::format("label {}", kCardMode), *word, &modes.refused);
  modes.all = own ? *own : foreign_mode(labels).value_or(CardMode::kAny);
  if (const auto* single = text_under(annotations, kCardModes)) {
    for (const CardStatement& one : card_statements(*single)) {
      const auto mode = card_mode_from(one.word);
      const auto name = one.card.substr(0, 64);
      if (mode) {
        modes.cards.emplace_back(name, *mode);
      } else {
        refuse_mode(fmt::format("annotation {}, card {}", kCardModes, name), one.word, &modes.refused);
      }
    }
  }
  if (const auto* drain = text_under(annotations, kCardModeDrain)) {
    modes.drains = *drain == "true";
    if (*drain != "true" && *drain != "false")
      modes.refused += fmt::format("{}annotation {}: \"{}\" is not legal; legal are true or false",
                                   modes.refused.empty() ? "" : "; ", kCardModeDrain, drain->substr(0, 64));
  }
  return modes;
}

}  // namespace carve::codec
