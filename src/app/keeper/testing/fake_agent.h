#pragma once

#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/keeper/words.h"
#include "port/kept_agent.h"

namespace carve::keeper {

/// A scripted agent for tests: it records what it was sent; the test determines what it sends and when it ends.
class FakeAgent final : public KeptAgent {
 public:
  Result<void> start(std::uint64_t crashes) override {
    starts.push_back(crashes);
    if (cannot_start) return fail(Code::kResourceExhausted, "the test makes it fail");
    sent.clear();
    lives = true;
    return {};
  }
  bool send(const std::string& packet) override {
    if (!lives || !reads) return false;
    if (auto word = codec::decode_keeper_word(packet)) sent.push_back(std::move(*word));
    return true;
  }
  std::optional<std::string> receive() override {
    if (said_.empty()) return std::nullopt;
    auto first = std::move(said_.front());
    said_.pop_front();
    return first;
  }
  std::optional<ProcessEnd> ended() override { return std::exchange(end_, std::nullopt); }
  void signal(int number) override {
    signals.push_back(number);
    if (number == SIGKILL) end({0, SIGKILL});
  }
  [[nodiscard]] std::vector<int> handles() const override { return {}; }

  void say(const codec::AgentWord& word) { said_.push_back(codec::encode(word)); }
  void say_nonsense() { said_.emplace_back("nonsense"); }
  void end(const ProcessEnd& how) {
    if (std::exchange(lives, false)) end_ = how;
  }
  /// The packets of type `Word` that the running agent was sent.
  template <class Word>
  [[nodiscard]] std::vector<Word> asked() const {
    std::vector<Word> found;
    for (const auto& word : sent) {
      if (const auto* one = std::get_if<Word>(&word)) found.push_back(*one);
    }
    return found;
  }

  std::vector<std::uint64_t> starts;  // the number of crashes that each start() received
  std::vector<codec::KeeperWord> sent;
  std::vector<int> signals;
  bool lives = false;
  bool reads = true;
  bool cannot_start = false;

 private:
  std::deque<std::string> said_;
  std::optional<ProcessEnd> end_;
};

}  // namespace carve::keeper
