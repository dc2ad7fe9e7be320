#include "adapter/api/client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "adapter/api/channel.h"
#include "adapter/api/messages.h"

namespace carve::api {
namespace {
constexpr std::chrono::milliseconds kAnswer{10'000};  // longer than any deadline inside the agent
constexpr std::chrono::milliseconds kRefusal{1'000};  // for an answer that has already been sent
constexpr std::chrono::milliseconds kAgain{50};
}  // namespace

bool Client::may_come_back() const {
  const std::string folder = path_.substr(0, path_.rfind('/'));
  return ::access(path_.c_str(), F_OK) == 0 || ::access((folder + "/up.lock").c_str(), F_OK) == 0;
}

Result<Fd> Client::connect() const {
  const auto until = std::chrono::steady_clock::now() + patience_;
  for (;;) {
    auto fd = connect_to(path_);
    if (fd || fd.error().code != Code::kUnavailable || !may_come_back()) return fd;
    if (std::chrono::steady_clock::now() >= until) return fd;
    ::poll(nullptr, 0, static_cast<int>(kAgain.count()));
  }
}

/// `again`: the request changes nothing, or the next agent undoes what it changed, so it is repeated once when the
/// agent ends before it answers.
Result<std::string> Client::ask(const std::string& bytes, std::chrono::milliseconds timeout, bool again) const {
  auto fd = connect();
  if (!fd && fd.error().code == Code::kDeadlineExceeded) {
    return fail(Code::kUnavailable,
                "the agent does not accept connections: " + fd.error().what + "; check whether it is stopped");
  }
  if (!fd)
    return fail(fd.error().code,
                "the agent does not answer: " + fd.error().what + "; start it with `carve up`");
  if (auto sent = send_frame(fd->get(), bytes); !sent) {
    // An agent with too many connections sends a refusal and closes the connection before it reads anything.
    if (auto refusal = receive_frame(fd->get(), kMaxReplyBytes, kRefusal)) return refusal;
    if (again) return ask(bytes, timeout, false);
    return fail_in("ask the agent", sent.error());
  }
  auto reply = receive_frame(fd->get(), kMaxReplyBytes, timeout);
  if (!reply && reply.error().code == Code::kDeadlineExceeded) {
    return fail(Code::kUnavailable, "the agent did not answer within " + std::to_string(timeout.count() / 1000) +
                                        " s; check whether it is stopped");
  }
  if (!reply && again && reply.error().code == Code::kUnavailable) return ask(bytes, timeout, false);
  if (!reply) return fail_in("the agent's answer", reply.error());
  return reply;
}

Result<Grant> Client::allocate(const Caller& /*caller*/, const AllocateRequest& request,
                               const std::function<bool()>& /*gone*/) {
  ApiRequest message;
  message.op = Op::kAllocate;
  message.allocate = request;
  const auto wait = std::min(request.wait.value_or(std::chrono::milliseconds(0)), kLongestWait);
  // An agent that starts gives back the slice of a command that did not learn of it. It keeps a slice that outlives its
  // command (`keep`), so a repeated request would create a second one.
  CARVE_TRY(const auto reply, ask(encode_request(message), kAnswer + wait, patience_.count() > 0 && !request.keep));
  return decode_grant_reply(reply);
}

Result<void> Client::join(const Caller& /*caller*/, const std::string& slice) {
  ApiRequest message;
  message.op = Op::kJoin;
  message.slice = slice;
  CARVE_TRY(const auto reply, ask(encode_request(message), kAnswer));
  return decode_void_reply(reply);
}

Result<void> Client::release(const Caller& /*caller*/, const std::string& slice, bool kill) {
  ApiRequest message;
  message.op = Op::kRelease;
  message.slice = slice;
  message.kill = kill;
  CARVE_TRY(const auto reply, ask(encode_request(message), kAnswer));
  return decode_void_reply(reply);
}

Result<AgentView> Client::view(const Caller& /*caller*/) {
  ApiRequest message;
  message.op = Op::kView;
  CARVE_TRY(const auto reply, ask(encode_request(message), kAnswer, patience_.count() > 0));
  return decode_view_reply(reply);
}

Result<HistoryAnswer> Client::history(const Caller& /*caller*/, const HistoryQuery& query) {
  ApiRequest message;
  message.op = Op::kHistory;
  message.history = query;
  CARVE_TRY(const auto reply, ask(encode_request(message), kAnswer, patience_.count() > 0));
  return decode_history_reply(reply);
}

}  // namespace carve::api
