#include "codec/health/known_cards_text.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>
#include <set>

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxWord = 1024;

tl::unexpected<Error> broken(const std::string& what) {
  return fail(Code::kDataLoss, "known cards: " + what);
}

Result<std::string> text_of(const json::object& object, const char* key) {
  const auto* value = object.if_contains(key);
  const auto* text = value != nullptr ? value->if_string() : nullptr;
  if (text == nullptr || text->size() > kMaxWord) return broken(fmt::format("{}: not a string", key));
  return std::string(text->data(), text->size());
}

/// A whole number within [low, high].
Result<std::int64_t> number_of(const json::object& object, const char* key, std::int64_t low, std::int64_t high) {
  const auto* value = object.if_contains(key);
  const auto* number = value != nullptr ? value->if_int64() : nullptr;
  if (number == nullptr || *number < low || *number > high)
    return broken(fmt::format("{}: not a number from {} to {}", key, low, high));
  return *number;
}

json::object encode(const KnownCard& known) {
  json::object out{{"uuid", known.card.id.str()},
                   {"vendor", known.card.vendor},
                   {"model", known.card.model},
                   {"memory", static_cast<std::int64_t>(known.card.memory.count())},
                   {"numa", known.card.numa_node},
                   {"minor", known.card.minor},
                   {"pcieRoot", known.card.pcie_root},
                   {"architecture", known.card.architecture},
                   {"computeCapability", known.card.compute_capability},
                   {"bus", known.pci_bus_id}};
  if (known.held) out["xid"] = known.held->xid;
  return out;
}

Result<KnownCard> card_of(const json::value& value) {
  const auto* object = value.if_object();
  if (object == nullptr) return broken("a card is not an object");
  KnownCard known;
  CARVE_TRY(const auto uuid, text_of(*object, "uuid"));
  if (uuid.empty()) return broken("uuid: empty");
  known.card.id = CardId(uuid);
  CARVE_TRY(known.card.vendor, text_of(*object, "vendor"));
  CARVE_TRY(known.card.model, text_of(*object, "model"));
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  CARVE_TRY(const auto memory, number_of(*object, "memory", 1, kMost));
  known.card.memory = Bytes(static_cast<std::uint64_t>(memory));
  CARVE_TRY(const auto numa, number_of(*object, "numa", -1, 1024));
  known.card.numa_node = static_cast<int>(numa);
  CARVE_TRY(const auto minor, number_of(*object, "minor", -1, 1 << 20));
  known.card.minor = static_cast<int>(minor);
  CARVE_TRY(known.card.pcie_root, text_of(*object, "pcieRoot"));
  CARVE_TRY(known.card.architecture, text_of(*object, "architecture"));
  CARVE_TRY(known.card.compute_capability, text_of(*object, "computeCapability"));
  CARVE_TRY(known.pci_bus_id, text_of(*object, "bus"));
  if (object->contains("xid")) {
    CARVE_TRY(const auto xid, number_of(*object, "xid", 1, kMostXid));
    known.held = HeldXid{static_cast<std::uint32_t>(xid)};
  }
  return known;
}

}  // namespace

std::string encode_known_cards(const KnownCards& known) {
  json::array cards;
  for (const auto& card : known.cards) cards.push_back(encode(card));
  const json::object out{{"version", kKnownCardsVersion},
                         {"boot", known.boot_id},
                         {"driver", known.driver_version},
                         {"cuda", known.cuda_version},
                         {"files", json::object{{"cuda", known.cuda_file}, {"nvml", known.nvml_file}}},
                         {"cards", std::move(cards)}};
  return json::serialize(out) + "\n";
}

Result<KnownCards> parse_known_cards(std::string_view text) {
  json::parse_options options;
  options.max_depth = 8;
  json::error_code error;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return broken("not JSON: " + error.message());
  const auto* object = value.if_object();
  if (object == nullptr) return broken("not an object");
  CARVE_TRY(const auto version, number_of(*object, "version", 1, std::numeric_limits<int>::max()));
  if (version != kKnownCardsVersion)
    return fail(Code::kUnimplemented, fmt::format("known cards: version {} is unknown; this agent reads {}", version,
                                                  kKnownCardsVersion));
  KnownCards known;
  CARVE_TRY(known.boot_id, text_of(*object, "boot"));
  CARVE_TRY(known.driver_version, text_of(*object, "driver"));
  CARVE_TRY(known.cuda_version, text_of(*object, "cuda"));
  const auto* files = object->if_contains("files");
  if (files == nullptr || !files->is_object()) return broken("files: not an object");
  CARVE_TRY(known.cuda_file, text_of(files->get_object(), "cuda"));
  CARVE_TRY(known.nvml_file, text_of(files->get_object(), "nvml"));
  const auto* cards = object->if_contains("cards");
  if (cards == nullptr || !cards->is_array() || cards->get_array().size() > kMaxKnownCards)
    return broken("cards: not a list of at most 1024 cards");
  std::set<std::string> seen;
  for (const auto& item : cards->get_array()) {
    CARVE_TRY(auto card, card_of(item));
    if (!seen.insert(card.card.id.str()).second) return broken("uuid: " + card.card.id.str() + " twice");
    known.cards.push_back(std::move(card));
  }
  return known;
}

}  // namespace carve::codec
