#include "codec/placement/placement_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/ascii.h"
#include "codec/dialects/dialect.h"
#include "codec/trimmed.h"

namespace carve::codec {
namespace {

constexpr std::size_t kMostPools = 100;
constexpr std::string_view kKeys = "cluster, namespace.NAME, pool.NAME, pool.NAME.nodes and quota.NAMESPACE";

bool is_word(std::string_view text, std::string_view beside, std::size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           beside.find(c) != std::string_view::npos;
  });
}

constexpr std::string_view kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

std::string policy_names() {
  std::vector<std::string_view> names;
  for (const PolicyRow& row : kPolicies) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

tl::unexpected<Error> no_choice(std::string_view value) {
  return fail(
      Code::kInvalidArgument,
      fmt::format(
          "\"{}\" is not a placement; legal: {} for nodes and cards, or one for each: "
          "node:{}, card:{}, node:{},card:{}",
          value.substr(0, 64), policy_names(), kPolicies[1].name, kPolicies[0].name,
          kPolicies[1].name, kPolicies[0].name));
}

/// Parses a set of labels, "a=b,c=d".
Result<NodeLabels> parse_selector(std::string_view value) {
  NodeLabels labels;
  auto rest = value;
  while (!rest.empty()) {
    auto piece = trimmed(next_piece(&rest, ','));
    const bool has_value = piece.find('=') != std::string_view::npos;
    const auto label = trimmed(next_piece(&piece, '='));
    const auto wanted = trimmed(piece);
    const bool good = has_value && is_word(label, std::string(kUpper) + "-_./", 317) &&
                      (wanted.empty() || is_word(wanted, std::string(kUpper) + "-_.", 63));
    if (!good || !labels.emplace(label, wanted).second) {
      return fail(Code::kInvalidArgument,
                  fmt::format("\"{}\" is not a set of node labels; legal: LABEL=VALUE, several "
                              "separated by commas, each label once",
                              value.substr(0, 64)));
    }
  }
  if (labels.empty())
    return fail(Code::kInvalidArgument,
                "the label is missing; use cluster = to select every node");
  return labels;
}

/// Parses a number of cards with at most two decimals; nullopt: it is none, or larger than kLargestQuota.
std::optional<CardParts> parse_cards(std::string_view text) {
  auto decimals = text;
  const auto whole = next_piece(&decimals, '.');
  const auto digits = [](std::string_view part) { return std::all_of(part.begin(), part.end(), is_digit); };
  const bool has_point = whole.size() != text.size();
  if (whole.empty() || whole.size() > 7 || decimals.size() > 2 || (has_point && decimals.empty()) || !digits(whole) ||
      !digits(decimals))
    return std::nullopt;
  CardParts parts = 0;
  for (const char c : whole) parts = parts * 10 + static_cast<CardParts>(c - '0');
  for (std::size_t i = 0; i < 2; ++i)
    parts = parts * 10 + static_cast<CardParts>(i < decimals.size() ? decimals[i] - '0' : 0);
  if (parts > kLargestQuota) return std::nullopt;
  return parts;
}

/// Parses the quotas of a namespace, "A100:4,*:8".
Result<std::vector<Quota>> parse_quotas(std::string_view value) {
  std::vector<Quota> quotas;
  for (auto rest = value; !rest.empty();) {
    auto piece = trimmed(next_piece(&rest, ','));
    const auto model = trimmed(next_piece(&piece, ':'));
    const auto limit = parse_cards(trimmed(piece));
    const bool good = model == "*" || is_word(model, std::string(kUpper) + "-_ ", 63);
    const std::string name(model == "*" ? "" : model);
    const bool known = std::any_of(quotas.begin(), quotas.end(), [&](const Quota& one) { return one.model == name; });
    if (!good || !limit || known) {
      return fail(Code::kInvalidArgument,
                  fmt::format("\"{}\" is not a quota; legal: MODEL:CARDS, several separated by commas, each model "
                              "once. MODEL is a part of the model's name or * for all, CARDS is 0 to {} with at most "
                              "two decimals",
                              value.substr(0, 64), kLargestQuota / 100));
    }
    quotas.push_back({name, *limit});
  }
  if (quotas.empty())
    return fail(Code::kInvalidArgument, "the quota is missing; legal: MODEL:CARDS, such as A100:4 or *:8");
  return quotas;
}

/// The policy that another system's annotation names, where the choice has none yet. The first word that names a policy
/// applies.
Result<void> add_ranking(const RankingAnnotation& ranking, std::string_view value, PolicyChoice* choice) {
  const NodePolicyRow* node = nullptr;
  const PolicyRow* card = nullptr;
  for (auto rest = value; !rest.empty();) {
    const auto word = trimmed(next_piece(&rest, ','));
    const auto* row = node_policy_named(word);
    const auto cards = policy_named(word);
    if (row == nullptr && std::find(ranking.others.begin(), ranking.others.end(), word) == ranking.others.end()) {
      return fail(Code::kInvalidArgument,
                  fmt::format("annotation {}: \"{}\" is not a policy; legal: {}{}{}", ranking.name, word.substr(0, 64),
                              policy_names(), ranking.others.empty() ? "" : ", ", fmt::join(ranking.others, ", ")));
    }
    if (node == nullptr) node = row;
    if (card == nullptr && cards) card = *cards;
  }
  if (ranking.nodes && choice->node == nullptr) choice->node = node;
  if (!ranking.nodes && choice->card == nullptr) choice->card = card;
  return {};
}

/// Collects the rules line by line.
class Reading {
 public:
  Result<void> take(std::string_view key, std::string_view value) {
    if (!keys_.insert(std::string(key)).second)
      return fail(Code::kInvalidArgument, "the key is set twice");
    if (key == "cluster") {
      CARVE_TRY(rules_.cluster, parse_policy_choice(value));
      return {};
    }
    std::string_view rest = key;
    const auto kind = next_piece(&rest, '.');
    if (kind == "namespace" && is_word(rest, "-", 63)) {
      CARVE_TRY(rules_.namespaces[std::string(rest)], parse_policy_choice(value));
      return {};
    }
    if (kind == "quota" && is_word(rest, "-", 63)) {
      CARVE_TRY(auto quotas, parse_quotas(value));
      rules_.quotas[std::string(rest)] = std::move(quotas);
      return {};
    }
    const auto name = next_piece(&rest, '.');
    if (kind != "pool" || !is_word(name, "-", 63) || (!rest.empty() && rest != "nodes") ||
        key.back() == '.')
      return fail(Code::kInvalidArgument, fmt::format("unknown key; legal: {}", kKeys));
    CARVE_TRY(PoolRule * pool, pool_named(name));
    if (rest.empty()) {
      CARVE_TRY(pool->choice, parse_policy_choice(value));
    } else {
      CARVE_TRY(pool->labels, parse_selector(value));
    }
    return {};
  }

  /// The faults that only the complete file shows.
  [[nodiscard]] std::vector<std::string> gaps() const {
    std::vector<std::string> found;
    for (const PoolRule& pool : rules_.pools) {
      for (const char* what : {"", ".nodes"}) {
        const std::string key = "pool." + pool.name + what;
        if (!keys_.contains(key)) found.push_back(key + ": is missing, but the pool's other key is set");
      }
    }
    return found;
  }

  PlacementRules take_rules() { return std::move(rules_); }

 private:
  Result<PoolRule*> pool_named(std::string_view name) {
    const auto found = std::find_if(rules_.pools.begin(), rules_.pools.end(),
                                    [&](const PoolRule& pool) { return pool.name == name; });
    if (found != rules_.pools.end()) return &*found;
    if (rules_.pools.size() == kMostPools)
      return fail(Code::kInvalidArgument, fmt::format("more than {} pools", kMostPools));
    return &rules_.pools.emplace_back(PoolRule{std::string(name), {}, {}});
  }

  PlacementRules rules_;
  std::set<std::string, std::less<>> keys_;
};

/// Takes every valid line. Returns what is wrong with the others, a line for each.
std::string read_lines(std::string_view text, Reading* reading) {
  std::string problems;
  for (int number = 1; !text.empty(); ++number) {
    auto line = next_piece(&text, '\n');
    line = trimmed(next_piece(&line, '#'));
    if (line.empty()) continue;
    const bool pair = line.find('=') != std::string_view::npos;
    const auto key = trimmed(next_piece(&line, '='));
    const auto taken = pair ? reading->take(key, trimmed(line))
                            : Result<void>(fail(Code::kInvalidArgument, "not of the form key = value"));
    if (!taken)
      problems += fmt::format("\n  placement.conf:{}: {}: {}", number, key.substr(0, 128), taken.error().what);
  }
  return problems;
}

}  // namespace

Result<PolicyChoice> parse_policy_choice(std::string_view value) {
  PolicyChoice choice;
  const auto* row_for_nodes = node_policy_named(value);
  if (const auto cards = policy_named(value); cards && row_for_nodes != nullptr)
    return PolicyChoice{row_for_nodes, *cards};
  auto rest = value;
  while (!rest.empty()) {
    auto piece = trimmed(next_piece(&rest, ','));
    const auto ranking = trimmed(next_piece(&piece, ':'));
    const auto name = trimmed(piece);
    if (ranking == "node" && choice.node == nullptr) {
      choice.node = node_policy_named(name);
      if (choice.node == nullptr) return no_choice(value);
    } else if (ranking == "card" && choice.card == nullptr) {
      const auto row = policy_named(name);
      if (!row) return no_choice(value);
      choice.card = *row;
    } else {
      return no_choice(value);
    }
  }
  if (choice == PolicyChoice{}) return no_choice(value);
  return choice;
}

std::string to_text(const PolicyChoice& choice) {
  if (choice.node != nullptr && choice.card != nullptr && choice.node->name == choice.card->name)
    return std::string(choice.node->name);
  std::string text;
  if (choice.node != nullptr) text = fmt::format("node:{}", choice.node->name);
  if (choice.card != nullptr)
    text += fmt::format("{}card:{}", text.empty() ? "" : ",", choice.card->name);
  return text;
}

Result<PlacementRules> parse_placement_rules(std::string_view text) {
  Reading reading;
  std::string problems = read_lines(text, &reading);
  // A pool with a faulty line may be complete after that line is fixed.
  if (problems.empty()) {
    for (const auto& gap : reading.gaps()) problems += "\n  placement.conf: " + gap;
  }
  if (!problems.empty()) return fail(Code::kInvalidArgument, "placement rules:" + problems);
  return reading.take_rules();
}

Quotas quotas_of_valid_lines(std::string_view text) {
  Reading reading;
  (void)read_lines(text, &reading);
  return reading.take_rules().quotas;
}

std::string to_text(const PlacementRules& rules) {
  std::string text;
  if (rules.cluster != PolicyChoice{}) text = fmt::format("cluster = {}\n", to_text(rules.cluster));
  for (const PoolRule& pool : rules.pools) {
    std::string labels;
    for (const auto& [label, value] : pool.labels)
      labels += fmt::format("{}{}={}", labels.empty() ? "" : ",", label, value);
    text += fmt::format("pool.{0}.nodes = {1}\npool.{0} = {2}\n", pool.name, labels,
                        to_text(pool.choice));
  }
  for (const auto& [name, choice] : rules.namespaces) text += fmt::format("namespace.{} = {}\n", name, to_text(choice));
  for (const auto& [name, quotas] : rules.quotas) {
    std::string words;
    for (const Quota& quota : quotas) {
      words += fmt::format("{}{}:{}", words.empty() ? "" : ",", quota.model.empty() ? "*" : quota.model,
                           to_human_cards(quota.limit));
    }
    text += fmt::format("quota.{} = {}\n", name, words);
  }
  return text;
}

Result<PolicyChoice> placement_of(const PodAsk& pod) {
  PolicyChoice choice;
  if (const auto said = pod.annotations.find(std::string(kPlacementAnnotation)); said != pod.annotations.end()) {
    auto own = parse_policy_choice(said->second);
    if (!own) return fail_in("annotation " + std::string(kPlacementAnnotation), own.error());
    choice = *own;
  }
  for (const auto& dialect : dialects()) {
    for (const auto& ranking : dialect.rankings) {
      const auto said = pod.annotations.find(std::string(ranking.name));
      if (said != pod.annotations.end()) CARVE_TRY_VOID(add_ranking(ranking, said->second, &choice));
    }
  }
  return choice;
}

}  // namespace carve::codec
