#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "codec/views/cluster_view.h"
#include "core/model/classes.h"

// The data of the dashboard: cards, slices, waiting pods and events of one machine or one cluster, as one table each.
// What a driver or an agent has to report is optional: nullopt means that it is not known.
namespace carve::codec {

struct BoardCard {
  std::string uuid;
  std::string node;
  int index = 0;
  std::string model;
  std::string driver;  // the version of the node's driver
  bool healthy = true;
  std::string reason;  // why it is unhealthy, or what it reported so far
  std::string closed;  // why an administrator closed it; empty: it is open
  std::string mode;
  Bytes memory;
  Bytes granted;
  Bytes free;                 // 0 if no other owner can use the card
  std::uint32_t cores = 100;  // hundredths of a card, as the two below
  std::uint32_t cores_granted = 0;
  std::uint32_t cores_free = 0;
  std::optional<Bytes> used = {};                // as the driver reports it
  std::optional<double> delivered_percent = {};  // GPU time of its slices in the last second
  std::optional<std::uint32_t> utilization_percent = {};
  std::optional<std::uint32_t> temperature_c = {};
  std::optional<std::uint32_t> power_w = {};
  std::uint32_t slices = 0;
  std::uint32_t foreign = 0;  // processes on the card that are in no slice
  std::uint64_t revision = 0;
  bool operator==(const BoardCard&) const = default;
};

/// What one container, request or `carve run` holds of one card.
struct BoardSlice {
  std::string id;  // unique on the board and as long as the slice lives
  std::string node;
  std::string card;            // UUID
  std::string namespace_name;  // empty: not of a cluster
  std::string pod;
  std::string container;      // or the request of a claim
  std::string name;           // for a person: the command, "namespace/pod", the claim
  std::string kind;           // run, device, pod, claim, …
  std::string agent_id = {};  // the agent's name of it; empty: the agent does not know it yet
  Bytes memory;
  std::uint32_t cores = 0;
  std::uint32_t core_limit = 100;  // see Request::ceiling
  bool whole = false;
  std::string share;
  std::string priority;
  std::string dialect;
  std::string state;
  std::optional<Bytes> used = {};
  std::optional<double> delivered_percent = {};
  std::optional<std::uint32_t> processes = {};
  std::uint64_t revision = 0;
  bool operator==(const BoardSlice&) const = default;
};

struct BoardNode {
  std::string name;
  bool answers = false;  // its agent answered the last call
  std::string error;     // why not; empty: not asked yet
  // The sums over its cards, which sum_nodes() fills in. The use is null if that of a card is not known.
  std::uint32_t cards = 0;
  std::uint32_t unhealthy = 0;
  std::uint32_t slices = 0;
  std::vector<std::string> models = {};
  Bytes memory = {};
  Bytes granted = {};
  std::optional<Bytes> used = {};
  std::uint32_t cores = 0;
  std::uint32_t cores_granted = 0;
  std::optional<double> delivered_percent = {};
  std::uint64_t revision = 0;
  bool operator==(const BoardNode&) const = default;
};

struct BoardEvent {
  std::int64_t unix_ms = 0;
  std::string node;
  std::string namespace_name;  // of the slice; empty: unknown
  std::string kind;
  std::string slice;
  std::string text;
  bool operator==(const BoardEvent&) const = default;
};

/// A Kubernetes Event as an event of the board. The namespace of an event about a Node is empty.
///   errors  kInvalidArgument: not an Event
[[nodiscard]] Result<BoardEvent> parse_board_event(std::string_view text);

/// The order of events: by time, then by what they are about.
[[nodiscard]] bool before(const BoardEvent& a, const BoardEvent& b);

struct Board {
  std::string scope;                // "machine" or "cluster"
  std::vector<BoardNode> nodes;     // sorted by name
  std::vector<BoardCard> cards;     // sorted by node, then by index
  std::vector<BoardSlice> slices;   // sorted by id
  std::vector<WaitingPod> waiting;  // sorted by namespace and name
  std::vector<BoardEvent> events;   // sorted by before(): newest last
  std::string notice = {};          // a sentence about missing data; empty: none
};

/// Fills in the sums of the nodes, from the cards.
void sum_nodes(Board* board);

/// Which slices of a size still fit on free cards, and how many would if all free room were on one card.
struct BoardShape {
  std::uint32_t parts = 1;  // of a card: 1, 2, 4, 8
  std::uint64_t fit = 0;
  std::uint64_t in_one_piece = 0;
};

/// The free room of the cards of one model.
struct BoardModel {
  std::string model;
  std::uint64_t cards = 0;
  std::uint64_t unhealthy = 0;
  std::uint64_t empty = 0;  // healthy, and without a slice
  Bytes memory;
  Bytes granted;
  Bytes free;
  std::uint64_t cores_free = 0;
  Bytes largest_memory;             // the largest memory request that fits on one card
  std::uint32_t largest_cores = 0;  // the largest compute request that fits on one card
  std::vector<BoardShape> shapes;
};
[[nodiscard]] std::vector<BoardModel> models_of(const Board& board);

/// What the slices of one namespace hold and use. On one machine the namespace is "".
struct BoardNamespace {
  std::string name;
  std::uint64_t slices = 0;
  std::uint64_t waiting = 0;
  Bytes memory;
  Bytes used;  // the sum over the slices with a known value, as the next but one
  std::uint64_t cores = 0;
  double delivered_percent = 0;
  std::uint64_t unknown = 0;  // slices whose use is not known
};
[[nodiscard]] std::vector<BoardNamespace> namespaces_of(const Board& board);

/// Which page of a table: at most `most` items, from the first one behind the place `after`.
struct BoardPage {
  std::string after;  // the `continue` of the page before, as it was written; empty: from the start
  std::size_t most = 0;
};

/// One page of a table as JSON: {"revision", "total", "items": […], "continue": "…"}. The keys are a stable API, which
/// docs/dashboard.md describes. `continue` names the last item, so items that come and go do not move the next page.
///   in      items: sorted as on the Board; cards, slices, nodes, waiting pods or events
///   errors  kInvalidArgument: `after` is not the `continue` of a page
///   cost    of the items on the page, and a binary search
template <class Item>
[[nodiscard]] Result<std::string> page_json(const std::vector<const Item*>& items, std::uint64_t revision,
                                            const BoardPage& page);
/// {"scope", "revision", "notice", "totals", "models": […], "namespaces": […]}
[[nodiscard]] std::string summary_json(const Board& board, std::uint64_t revision);

/// What changed on the board after `since`: the changed and new items of each table, and the keys of those that are
/// gone. `complete`: the text contains everything, and replaces what the reader has.
struct BoardChange {
  std::uint64_t revision = 0;
  bool complete = false;
  std::vector<const BoardNode*> nodes;
  std::vector<const BoardCard*> cards;
  std::vector<const BoardSlice*> slices;
  std::vector<std::string> gone_nodes;
  std::vector<std::string> gone_cards;
  std::vector<std::string> gone_slices;
  bool rest = false;  // waiting pods or events changed; they are sent whole
};
[[nodiscard]] std::string change_json(const Board& board, const BoardChange& change);

}  // namespace carve::codec
