#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "port/agent_api.h"

// The messages of the agent's local API: one JSON object per message, each in its own frame (channel.h). The agent does
// not trust a client: unknown members, wrong types and values out of range are refused with the name of the member.
// Pure.
namespace carve::api {

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMaxRequestBytes = 64U << 10U;
inline constexpr std::size_t kMaxReplyBytes = 16U << 20U;

enum class Op : std::uint8_t { kAllocate, kJoin, kRelease, kView, kHistory };

struct ApiRequest {
  Op op = Op::kView;
  AllocateRequest allocate;  // kAllocate
  std::string slice;         // kJoin, kRelease
  bool kill = false;         // kRelease
  HistoryQuery history;      // kHistory
};

[[nodiscard]] std::string encode_request(const ApiRequest& request);
///   errors  kInvalidArgument names the member; kUnimplemented: another version of the API
[[nodiscard]] Result<ApiRequest> decode_request(std::string_view bytes);

[[nodiscard]] std::string encode_reply(const Result<void>& result);
[[nodiscard]] std::string encode_reply(const Result<Grant>& result);
[[nodiscard]] std::string encode_reply(const Result<AgentView>& result);
[[nodiscard]] std::string encode_reply(const Result<HistoryAnswer>& result);
[[nodiscard]] Result<void> decode_void_reply(std::string_view bytes);
[[nodiscard]] Result<Grant> decode_grant_reply(std::string_view bytes);
[[nodiscard]] Result<AgentView> decode_view_reply(std::string_view bytes);
[[nodiscard]] Result<HistoryAnswer> decode_history_reply(std::string_view bytes);

/// The view and the grant for `-o json`: the same members as in the message, indented.
[[nodiscard]] std::string to_json(const AgentView& view);
[[nodiscard]] std::string to_json(const Grant& grant);
/// {"nodes":[{"node", "agent": the view} or {"node", "error"}, …]}
[[nodiscard]] std::string to_json(const std::vector<NodeView>& nodes);

/// The view without processes of slices, command lines and events: the part that every client of the agent's port may
/// read.
[[nodiscard]] std::string public_json(AgentView view);
/// Decodes the output of public_json() or to_json().
///   errors  kInvalidArgument names the member
[[nodiscard]] Result<AgentView> view_of_json(std::string_view text);

}  // namespace carve::api
