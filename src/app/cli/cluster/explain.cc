#include "app/cli/cluster/explain.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve::cli {
namespace {

constexpr std::size_t kMostNodes = 5;

std::string some_of(const std::vector<std::string>& nodes, std::size_t from) {
  const std::vector<std::string> shown(nodes.begin() + static_cast<std::ptrdiff_t>(from),
                                       nodes.begin() + static_cast<std::ptrdiff_t>(
                                                           std::min(nodes.size(), from + kMostNodes)));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (nodes.size() > from + kMostNodes) text += fmt::format(" and {} more", nodes.size() - from - kMostNodes);
  return text;
}

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string would_fit(const SmallerAsk& smaller) {
  std::vector<std::string> words;
  if (smaller.memory) words.push_back(fmt::format("at most {} of each card", to_human(*smaller.memory)));
  if (smaller.compute) words.push_back(fmt::format("at most {}/100 of each card's compute", *smaller.compute));
  if (smaller.cards) words.push_back("at most " + counted(*smaller.cards, "card"));
  return fmt::format("{}", fmt::join(words, ", or "));
}

std::string holds(const codec::Explanation& said) {
  std::string text;
  for (const auto& part : said.holds) {
    for (const auto& card : part.cards) {
      const std::string share = part.whole ? "the whole card"
                                           : fmt::format("{}, compute {}, {}", to_human(card.memory),
                                                         card.compute.hundredths(), to_string(part.share));
      text += fmt::format("  holds    {}: {}  {}\n", part.part, card.card.str(), share);
    }
  }
  if (!text.empty()) text += fmt::format("  decided  in epoch {} of control\n", said.epoch);
  return text;
}

/// Memory and compute together: half a card in millionths of each is half a card.
std::string per_cent(std::int64_t left) { return fmt::format("{:.1f} %", static_cast<double>(left) / 2e4); }

/// The terms by which the first nodes stand where they stand; of the first one its cards, too.
std::string terms(const codec::Explanation& said) {
  std::string text;
  for (const auto& node : said.ranked) {
    text += fmt::format("  ranked   {}: would leave {} of the cards that it gives, {} of the node\n", node.node,
                        per_cent(node.left.cards), per_cent(node.left.node));
    if (&node != &said.ranked.front()) continue;
    for (const auto& card : node.cards) {
      text += fmt::format("             {}  {} left now{}\n", card.card.str(), per_cent(card.left),
                          card.gives.empty() ? std::string() : fmt::format(", for {}", fmt::join(card.gives, ", ")));
    }
  }
  return text;
}

std::string waits(const codec::Explanation& said) {
  if (!said.fits.empty()) {
    return fmt::format("  fits     on {} of {}: {}\n{}  so       it is not the cards that it waits for\n",
                       said.fits.size(), counted(said.nodes, "node"), some_of(said.fits, 0), terms(said));
  }
  std::string text = fmt::format("  fits     on none of {} with cards\n", counted(said.nodes, "node"));
  for (const auto& group : said.refused)
    text += fmt::format("           {}: {}\n", counted(group.nodes, "node"), group.why);
  if (const auto smaller = would_fit(said.smaller); !smaller.empty())
    text += "  now      only if it asked for " + smaller + "\n";
  return text + (said.final ? "  later    never on these nodes, unless it asks for something else or they get other "
                              "cards\n"
                            : "  later    when slices end; it is tried again at once\n");
}

}  // namespace

std::string render_explanation(const codec::Explanation& said) {
  std::string text = fmt::format("pod {}/{} {}\n", said.space, said.name, said.state);
  if (!said.wrong.empty()) text += "  wrong    " + said.wrong + "\n";
  for (const auto& part : said.asks) {
    text += fmt::format("  asks     {}{}: {} ({})\n", part.part, part.phase == Phase::kInit ? " (init)" : "",
                        to_human(part.request), part.request.dialect);
  }
  if (said.asks.empty() && said.wrong.empty()) text += "  asks     for no card\n";
  text += holds(said);
  if (!said.fits.empty()) text += "  policy   " + said.policy + "\n";
  if (said.node.empty() && !said.asks.empty() && !said.ended) {
    text += waits(said);
  } else if (!said.fits.empty()) {
    text += fmt::format("  today    it would go to {}{}\n{}", said.fits.front(),
                        said.fits.size() == 1 ? "" : ", then " + some_of(said.fits, 1), terms(said));
  }
  if (!said.unread.empty()) text += "  note     " + said.unread + "\n";
  if (!said.scheduler_says.empty()) text += "  said     " + said.scheduler_says + "\n";
  return text;
}

}  // namespace carve::cli
