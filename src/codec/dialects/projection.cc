#include "codec/dialects/projection.h"

#include <algorithm>

namespace carve::codec {
namespace {

const Dialect* dialect_named(const std::string& name) {
  for (const Dialect& dialect : dialects()) {
    if (dialect.name == name) return &dialect;
  }
  return nullptr;
}

}  // namespace

Texts projections(const PodAsk& pod, const Record& record, const std::vector<CountedCard>& cards,
                  const DialectSettings& settings, std::uint64_t now_ns, const std::string& node) {
  Shown shown{record, cards, settings, {}, now_ns, node};
  for (const auto& container : pod.containers) {
    if (container.kind == ContainerKind::kMain) shown.containers.push_back(container.name);
  }
  Texts all;
  for (const Dialect& dialect : dialects()) {
    const bool spoken =
        std::any_of(record.parts.begin(), record.parts.end(),
                    [&](const RecordPart& part) { return part.dialect == dialect.name; });
    if (spoken && dialect.show != nullptr) all.merge(dialect.show(shown));
  }
  return all;
}

const CountedCard* counted(const Shown& shown, const CardId& card) {
  const auto found = std::find_if(shown.cards.begin(), shown.cards.end(),
                                  [&](const CountedCard& one) { return one.id == card; });
  return found == shown.cards.end() ? nullptr : &*found;
}

std::string indexes_of(const Shown& shown, const RecordPart& part) {
  std::string indexes;
  for (const RecordCard& held : part.cards) {
    const CountedCard* card = counted(shown, held.card);
    if (card == nullptr || card->index < 0) return {};
    indexes += (indexes.empty() ? "" : ",") + std::to_string(card->index);
  }
  return indexes;
}

Texts environment(const Record& record, const std::string& part,
                  const std::vector<CountedCard>& cards, const DialectSettings& settings) {
  const RecordPart* found = part_named(record, part);
  if (found == nullptr) return {};
  const Dialect* dialect = dialect_named(found->dialect);
  if (dialect == nullptr || dialect->environment == nullptr) return {};
  return dialect->environment(Shown{record, cards, settings, {}, 0}, *found);
}

}  // namespace carve::codec
