#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

// The line between an agent and its keeper, which holds the kubelet's side of the slot door while agents come and go.
// Numbers are the keeper's: each question has one of its own, for ever.
namespace carve::codec {

// The keeper asks and tells.
struct AskAllocate {
  std::uint64_t number = 0;
  std::vector<std::string> slots;
  friend bool operator==(const AskAllocate&, const AskAllocate&) = default;
};
struct AskStart {  // PreStartContainer
  std::uint64_t number = 0;
  std::vector<std::string> slots;
  friend bool operator==(const AskStart&, const AskStart&) = default;
};
struct AskAlive {
  std::uint64_t number = 0;
  friend bool operator==(const AskAlive&, const AskAlive&) = default;
};
struct TellListening {  // whether the kubelet has registered the door and listens to its list
  bool listening = false;
  friend bool operator==(const TellListening&, const TellListening&) = default;
};
struct TellClosed {  // the answer to SayLeft
  friend bool operator==(const TellClosed&, const TellClosed&) = default;
};
using KeeperWord = std::variant<AskAllocate, AskStart, AskAlive, TellListening, TellClosed>;

// The agent answers and says.
struct SayServing {  // questions are answered from now on
  friend bool operator==(const SayServing&, const SayServing&) = default;
};
struct KeptSlot {
  std::string id;
  bool healthy = true;
  friend bool operator==(const KeptSlot&, const KeptSlot&) = default;
};
struct SayList {
  bool settled = false;  // false: the cards were not asked yet, so that what is free counts as unhealthy
  std::vector<KeptSlot> slots;
  friend bool operator==(const SayList&, const SayList&) = default;
};
struct AnswerAllocated {
  std::uint64_t number = 0;
  std::string device;
  friend bool operator==(const AnswerAllocated&, const AnswerAllocated&) = default;
};
struct AnswerStart {
  std::uint64_t number = 0;
  friend bool operator==(const AnswerStart&, const AnswerStart&) = default;
};
struct AnswerRefused {  // either question
  std::uint64_t number = 0;
  Code code = Code::kUnknown;
  std::string what;
  friend bool operator==(const AnswerRefused&, const AnswerRefused&) = default;
};
struct AnswerAlive {
  std::uint64_t number = 0;
  friend bool operator==(const AnswerAlive&, const AnswerAlive&) = default;
};
struct SayLeft {  // this agent ends in order: the kubelet is to be told that nobody serves
  friend bool operator==(const SayLeft&, const SayLeft&) = default;
};
using AgentWord = std::variant<SayServing, SayList, AnswerAllocated, AnswerStart, AnswerRefused, AnswerAlive, SayLeft>;

/// A slot's name that a line can carry: 1 to 63 printable characters.
[[nodiscard]] bool is_slot_name(std::string_view name);

/// One packet. Slots' names are is_slot_name(), a device has no line's end.
[[nodiscard]] std::string encode(const KeeperWord& word);
[[nodiscard]] std::string encode(const AgentWord& word);

///   errors  kInvalidArgument: no word, or one with too much or too little
[[nodiscard]] Result<KeeperWord> decode_keeper_word(std::string_view packet);
[[nodiscard]] Result<AgentWord> decode_agent_word(std::string_view packet);

}  // namespace carve::codec
