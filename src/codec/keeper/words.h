#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

// The messages between an agent and its keeper. The keeper holds the kubelet's side of the device plugin across
// restarts of the agent. The keeper assigns the numbers: each question has its own, and none is reused.
namespace carve::codec {

// From the keeper.
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
struct TellListening {  // whether the kubelet has registered the device plugin and reads its list
  bool listening = false;
  friend bool operator==(const TellListening&, const TellListening&) = default;
};
struct TellClosed {  // the answer to SayLeft
  friend bool operator==(const TellClosed&, const TellClosed&) = default;
};
using KeeperWord = std::variant<AskAllocate, AskStart, AskAlive, TellListening, TellClosed>;

// From the agent.
struct SayServing {  // the agent answers questions from now on
  friend bool operator==(const SayServing&, const SayServing&) = default;
};
struct KeptSlot {
  std::string id;
  bool healthy = true;
  friend bool operator==(const KeptSlot&, const KeptSlot&) = default;
};
struct SayList {
  bool settled = false;  // false: the cards have not been queried yet, so free slots count as unhealthy
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
struct AnswerRefused {  // refuses either question
  std::uint64_t number = 0;
  Code code = Code::kUnknown;
  std::string what;
  friend bool operator==(const AnswerRefused&, const AnswerRefused&) = default;
};
struct AnswerAlive {
  std::uint64_t number = 0;
  friend bool operator==(const AnswerAlive&, const AnswerAlive&) = default;
};
struct SayLeft {  // this agent ends in order: the kubelet must be notified that the device plugin is not served
  friend bool operator==(const SayLeft&, const SayLeft&) = default;
};
using AgentWord = std::variant<SayServing, SayList, AnswerAllocated, AnswerStart, AnswerRefused, AnswerAlive, SayLeft>;

/// A slot name that a line can carry: 1 to 63 printable characters.
[[nodiscard]] bool is_slot_name(std::string_view name);

/// One packet. Slot names must pass is_slot_name(); a device name has no line end.
[[nodiscard]] std::string encode(const KeeperWord& word);
[[nodiscard]] std::string encode(const AgentWord& word);

///   errors  kInvalidArgument: not a message, or one with missing or extra fields
[[nodiscard]] Result<KeeperWord> decode_keeper_word(std::string_view packet);
[[nodiscard]] Result<AgentWord> decode_agent_word(std::string_view packet);

}  // namespace carve::codec
