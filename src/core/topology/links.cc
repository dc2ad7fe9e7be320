#include "core/topology/links.h"

#include <algorithm>
#include <array>
#include <utility>

namespace carve {

std::string_view to_string(LinkLevel level) {
  constexpr std::array<std::string_view, 7> kWords = {"?",   "SYS", "NODE",  "PHB",
                                                      "PXB", "PIX", "NVLINK"};
  const auto at = static_cast<std::size_t>(level);
  return at < kWords.size() ? kWords[at] : kWords[0];
}

LinkMatrix::LinkMatrix(std::vector<CardId> cards) : cards_(std::move(cards)) {
  std::sort(cards_.begin(), cards_.end());
  cards_.erase(std::unique(cards_.begin(), cards_.end()), cards_.end());
  links_.resize(cards_.size() * cards_.size());
}

std::size_t LinkMatrix::index(const CardId& card) const {
  const auto at = std::lower_bound(cards_.begin(), cards_.end(), card);
  return at != cards_.end() && *at == card ? static_cast<std::size_t>(at - cards_.begin())
                                           : cards_.size();
}

void LinkMatrix::set(const CardId& a, const CardId& b, Link link) {
  const std::size_t i = index(a);
  const std::size_t j = index(b);
  if (i == cards_.size() || j == cards_.size() || i == j) return;
  links_[i * cards_.size() + j] = link;
  links_[j * cards_.size() + i] = link;
}

Link LinkMatrix::between(const CardId& a, const CardId& b) const {
  const std::size_t i = index(a);
  const std::size_t j = index(b);
  if (i == cards_.size() || j == cards_.size()) return {};
  return links_[i * cards_.size() + j];
}

}  // namespace carve
