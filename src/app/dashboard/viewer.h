#pragma once

#include <functional>
#include <set>
#include <string>

#include "base/result.h"
#include "codec/views/board.h"

namespace carve::dashboard {

/// What a person may see.
struct Viewer {
  bool everything = false;           // all cards and the slices of all namespaces
  bool cards = false;                // all cards, with the sums of what is granted and used
  std::set<std::string> namespaces;  // whose slices, pods and events
  bool operator==(const Viewer&) const = default;

  [[nodiscard]] bool sees(const std::string& namespace_name) const {
    return everything || namespaces.count(namespace_name) != 0;
  }
};

/// Finds out what the bearer of a token may see.
///   in      namespaces: those that occur on the board; others need not be examined
///   errors  kUnauthenticated: the token is missing or invalid; kUnavailable: it cannot be verified now
using Admit = std::function<Result<Viewer>(const std::string& token, const std::set<std::string>& namespaces)>;

/// The namespaces that occur on the board.
[[nodiscard]] std::set<std::string> namespaces_on(const codec::Board& board);

/// The board without what the viewer may not see. Without the right to the cards, a card is shown if one of the visible
/// slices is on it, with the sums of these slices alone and without the card's other use.
[[nodiscard]] codec::Board seen_by(const Viewer& viewer, const codec::Board& board);

}  // namespace carve::dashboard
