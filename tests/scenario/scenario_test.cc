// Plays every *.txt file of this folder; README.md there lists the statements.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "codec/dialects/run_request.h"
#include "codec/quantity.h"
#include "core/policy/policy.h"

namespace carve {
namespace {

using Words = std::vector<std::string>;

/// Words separated by spaces; "…" keeps spaces in a word; # starts a comment.
Words split(const std::string& line) {
  Words words;
  bool open = false;
  bool fresh = true;
  for (const char c : line) {
    if (c == '"') {
      open = !open;
      if (open && fresh) words.emplace_back();
      fresh = false;
    } else if (!open && c == '#') {
      break;
    } else if (!open && std::isspace(static_cast<unsigned char>(c)) != 0) {
      fresh = true;
    } else {
      if (fresh) words.emplace_back();
      fresh = false;
      words.back() += c;
    }
  }
  return words;
}

std::string joined_words(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// The machine of a scenario. An unknown statement fails the test.
class Scenario {
 public:
  /// Executes a statement. Returns what is wrong with it or with its outcome; empty when the outcome is as expected.
  std::string play(const Words& words) {
    const std::string verb = words.front();
    const Words rest(words.begin() + 1, words.end());
    if (verb == "policy" && rest.size() == 1) return set_policy(rest[0]);
    if (verb == "card" && !rest.empty()) return add_card(rest);
    if (verb == "link" && rest.size() >= 3) return add_link(rest);
    if (verb == "ask" && !rest.empty()) return ask(rest);
    if (verb == "end" && rest.size() == 1) {
      return ledger_.remove_owner({OwnerKind::kLocal, rest[0]}) > 0 ? "" : "nothing ended";
    }
    if (verb == "unhealthy" && rest.size() == 2) return health(rest[0], Health{false, rest[1]});
    if (verb == "healthy" && rest.size() == 1) return health(rest[0], Health{});
    if (verb == "free" && rest.size() == 3) return expect_free(rest);
    return "not a statement";
  }

 private:
  std::string set_policy(const std::string& name) {
    const auto row = policy_named(name);
    if (!row) return row.error().what;
    policy_ = *row;
    return "";
  }

  std::string add_card(const Words& words) {
    Card card;
    card.id = CardId(words[0]);
    for (std::size_t i = 1; i + 1 < words.size(); i += 2) {
      if (words[i] == "model") {
        card.model = words[i + 1];
      } else if (words[i] == "memory") {
        const auto bytes = codec::parse_bytes("memory", words[i + 1]);
        if (!bytes) return bytes.error().what;
        card.memory = *bytes;
      } else if (words[i] == "numa") {
        card.numa_node = std::stoi(words[i + 1]);
      } else {
        return "card: unknown word " + words[i];
      }
    }
    const auto put = ledger_.put_card(card);
    return put ? "" : put.error().what;
  }

  std::string add_link(const Words& words) {
    std::vector<CardId> ids;
    for (const CardState& card : ledger_.cards()) ids.push_back(card.card.id);
    if (links_.cards() != ids) links_ = LinkMatrix(ids);
    for (int level = 0; level <= static_cast<int>(LinkLevel::kNvLink); ++level) {
      if (to_string(static_cast<LinkLevel>(level)) != words[2]) continue;
      const int lanes = words.size() > 3 ? std::stoi(words[3]) : 0;
      links_.set(CardId(words[0]), CardId(words[1]),
                 {static_cast<LinkLevel>(level), static_cast<std::uint8_t>(lanes)});
      return "";
    }
    return "link: unknown level " + words[2];
  }

  static std::string read_request(const Words& words, codec::RunWords& out) {
    std::map<std::string, std::optional<std::string>*> fields = {
        {"memory", &out.memory}, {"cores", &out.cores},       {"cards", &out.cards},
        {"share", &out.share},   {"priority", &out.priority}, {"model", &out.model}};
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "exclusive") {
        out.exclusive = true;
      } else if (i + 1 == words.size()) {
        return "ask: no value after " + words[i];
      } else if (words[i] == "card") {
        out.card.push_back(words[++i]);
      } else if (fields.contains(words[i])) {
        *fields[words[i]] = words[i + 1];
        ++i;
      } else {
        return "ask: unknown word " + words[i];
      }
    }
    return "";
  }

  std::string ask(const Words& words) {
    const auto arrow = std::find(words.begin(), words.end(), "->");
    if (arrow == words.end() || arrow + 1 == words.end()) return "ask: no -> and expectation";
    const Words expected(arrow + 1, words.end());
    codec::RunWords run;
    if (std::string wrong = read_request(Words(words.begin() + 1, arrow), run); !wrong.empty()) {
      return wrong;
    }
    const auto request = codec::request_from(run);
    if (!request) return compare_refusal(expected, request.error());
    const auto placed = place(ledger_, links_, *request, *policy_);
    if (!placed) return compare_refusal(expected, placed.error());
    Words got;
    for (const PlacedCard& card : *placed) got.push_back(card.card.str());
    if (got != expected) return "it went to " + joined_words(got);
    const auto held =
        ledger_.add(slices_for({OwnerKind::kLocal, words[0]}, "main", *request, *placed));
    return held ? "" : held.error().what;
  }

  static std::string compare_refusal(const Words& expected, const Error& error) {
    const std::string kind = error.code == Code::kInvalidArgument      ? "illegal"
                             : error.code == Code::kFailedPrecondition ? "never"
                                                                       : "later";
    if (expected.size() == 2 && expected[0] == kind &&
        error.what.find(expected[1]) != std::string::npos) {
      return "";
    }
    return kind + ": " + error.what;
  }

  std::string health(const std::string& card, Health health) {
    const auto set = ledger_.set_health(CardId(card), std::move(health));
    return set ? "" : set.error().what;
  }

  std::string expect_free(const Words& words) const {
    const CardState* card = ledger_.find(CardId(words[0]));
    if (card == nullptr) return "no such card";
    const auto bytes = words[1] == "0" ? Bytes() : codec::parse_bytes("free", words[1]).value();
    if (card->free_memory() == bytes &&
        std::to_string(card->free_compute().hundredths()) == words[2]) {
      return "";
    }
    return to_canonical(card->free_memory()) + " and compute " +
           std::to_string(card->free_compute().hundredths()) + " are free";
  }

  Ledger ledger_;
  LinkMatrix links_;
  const PolicyRow* policy_ = &kPolicies.front();
};

std::vector<std::string> scenario_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CARVE_SCENARIOS)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".txt" && name != "CMakeLists") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, EveryStatementHolds) {
  const std::string path = std::string(CARVE_SCENARIOS) + "/" + GetParam() + ".txt";
  std::ifstream in(path);
  Scenario scenario;
  int line_number = 0;
  int statements = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    const Words words = split(line);
    if (words.empty()) continue;
    ++statements;
    EXPECT_EQ(scenario.play(words), "") << path << ":" << line_number << ": " << line;
  }
  EXPECT_GT(statements, 0) << path;
}

INSTANTIATE_TEST_SUITE_P(All, ScenarioTest, testing::ValuesIn(scenario_files()),
                         [](const auto& file) { return file.param; });

}  // namespace
}  // namespace carve
