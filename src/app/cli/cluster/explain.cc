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
                                                         to_human(card.compute, part.ceiling), to_string(part.share));
      text += fmt::format("  slice    {}: {}  {}\n", part.part, card.card.str(), share);
    }
  }
  if (!text.empty()) text += fmt::format("  decided  in epoch {} of control\n", said.epoch);
  return text;
}

std::string claims(const codec::Explanation& said) {
  std::string text;
  for (const auto& one : said.claims) {
    text += fmt::format("  claim    {}{}{}: {}\n", one.claim, one.request.empty() ? "" : ", request ", one.request,
                        one.asks.empty() ? one.state : one.asks);
    if (!one.device.empty()) text += fmt::format("  device   {}\n", one.device);
    if (!one.asks.empty()) text += fmt::format("  state    {}\n", one.state);
  }
  return text;
}

/// `left` is the sum of memory and compute, each in millionths of a card: 2e6 is 100 %.
std::string per_cent(std::int64_t left) { return fmt::format("{:.1f} %", static_cast<double>(left) / 2e4); }

/// The scores of the best nodes, and the cards of the first one.
std::string terms(const codec::Explanation& said) {
  std::string text;
  for (const auto& node : said.ranked) {
    text += fmt::format("  ranked   {}: would leave {} of the pod's cards and {} of the node free\n", node.node,
                        per_cent(node.left.cards), per_cent(node.left.node));
    if (&node != &said.ranked.front()) continue;
    for (const auto& card : node.cards) {
      text += fmt::format("             {}  {} free now{}{}\n", card.card.str(), per_cent(card.left),
                          card.mixed ? ", has slices of the opposite priority class" : "",
                          card.gives.empty() ? std::string() : fmt::format(", for {}", fmt::join(card.gives, ", ")));
    }
  }
  return text;
}

std::string waits(const codec::Explanation& said) {
  if (!said.fits.empty()) {
    return fmt::format("  fits     on {} of {}: {}\n{}  so       the pod does not wait for cards\n", said.fits.size(),
                       counted(said.nodes, "node"), some_of(said.fits, 0), terms(said));
  }
  std::string text = fmt::format("  fits     on none of {} with cards\n", counted(said.nodes, "node"));
  for (const auto& group : said.refused)
    text += fmt::format("           {}: {}\n", counted(group.nodes, "node"), group.why);
  if (const auto smaller = would_fit(said.smaller); !smaller.empty())
    text += "  now      only if the pod requested " + smaller + "\n";
  return text + (said.final ? "  later    never on these nodes, unless the pod's request or the nodes' cards change\n"
                            : "  later    when slices end: the pod is retried immediately\n");
}

}  // namespace

std::string render_explanation(const codec::Explanation& said) {
  std::string text = fmt::format("pod {}/{} {}\n", said.namespace_name, said.name, said.state);
  if (!said.wrong.empty()) text += "  error    " + said.wrong + "\n";
  for (const auto& part : said.asks) {
    text += fmt::format("  requests {}{}: {} ({})\n", part.part, part.phase == Phase::kInit ? " (init)" : "",
                        to_human(part.request), part.request.dialect);
  }
  if (said.asks.empty() && said.claims.empty() && said.wrong.empty()) text += "  requests no card\n";
  text += holds(said);
  text += claims(said);
  if (!said.fits.empty()) text += "  policy   " + said.policy + "\n";
  if (said.node.empty() && !said.asks.empty() && !said.ended) {
    text += waits(said);
  } else if (!said.fits.empty()) {
    text += fmt::format("  today    the pod would be placed on {}{}\n{}", said.fits.front(),
                        said.fits.size() == 1 ? "" : ", then " + some_of(said.fits, 1), terms(said));
  }
  if (!said.unread.empty()) text += "  note     " + said.unread + "\n";
  if (!said.scheduler_says.empty()) text += "  event    " + said.scheduler_says + "\n";
  return text;
}

}  // namespace carve::cli
