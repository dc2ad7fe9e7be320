#include "adapter/kube/caller.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "codec/kube/messages.h"

namespace carve::kube {
namespace {

constexpr std::chrono::milliseconds kLeastWait{50};  // the shortest wait for a Retry-After
constexpr auto kIdle = std::chrono::minutes(1);      // the API server closes idle connections after 90 s
constexpr const char* kBudget = "DisruptionBudget";  // policy/v1: the cause of an eviction's 429
constexpr std::size_t kLargestAnswer = 32U << 20U;   // a page of 250 large objects

Code code_of(int status, const std::string& method) {
  switch (status) {
    case 400: case 405: case 406: case 413: case 415: case 422: return Code::kInvalidArgument;
    case 401: case 403: return Code::kPermissionDenied;
    case 404: return Code::kNotFound;
    case 408: case 504: return Code::kDeadlineExceeded;
    case 409: return method == "POST" ? Code::kAlreadyExists : Code::kAborted;
    case 410: return Code::kOutOfRange;
    case 412: return Code::kAborted;
    case 429: return Code::kResourceExhausted;
    default: return status >= 500 ? Code::kUnavailable : Code::kUnknown;
  }
}

/// True when a write may have been executed although the server, or a proxy before it, reports a failure: etcd's answer
/// may have been lost. A write with Retry-After was not begun.
bool may_be_executed(int status, const std::string& method, bool sent_away) {
  return code_of(status, method) == Code::kUnavailable && method != "GET" && !sent_away;
}

/// A write that was under way when the connection broke may have been executed, whereas kUnavailable means that it was
/// not.
Result<HttpResponse> unknown_if_lost(const HttpRequest& request, Result<HttpResponse> response) {
  if (response || request.method == "GET" || response.error().code != Code::kUnavailable) return response;
  return fail(Code::kDeadlineExceeded, response.error().what + " (it is unknown whether the write was executed)");
}

tl::unexpected<Error> refusal(const HttpRequest& request, const HttpResponse& response) {
  const auto path = request.target.substr(0, request.target.find('?'));
  const auto what =
      fmt::format("{} {}: {}: {}", request.method, path, response.status, codec::kube_message(response.body));
  if (may_be_executed(response.status, request.method, response.retry_after.has_value()))
    return fail(Code::kInternal, what + " (it is unknown whether the write was executed)");
  if (response.status == 429 && codec::kube_has_cause(response.body, kBudget))
    return fail(Code::kFailedPrecondition, what);
  return fail(code_of(response.status, request.method), what);
}

// The sockets use the system's clock, regardless of the clock for the back-off.
Patience patience_for(std::chrono::milliseconds limit, const std::stop_token& stop) {
  return {.deadline = std::chrono::steady_clock::now() + limit, .stop = stop};
}

}  // namespace

Caller::Caller(std::vector<std::string> kubeconfigs, Clock& clock, const Limits& limits, std::string context)
    : access_(std::move(kubeconfigs), clock, {.limit = limits.plugin, .terminal = ::isatty(STDIN_FILENO) == 1},
              std::move(context)),
      clock_(clock),
      limits_(limits) {}

/// The current credentials. The time that a plug-in needs to ask a person does not count against the call's limit.
Result<Credentials> Caller::credentials(Patience* patience) {
  const auto began = std::chrono::steady_clock::now();
  auto found = access_.current();
  patience->deadline += std::chrono::steady_clock::now() - began;
  return found;
}

Result<void> Caller::check() {
  CARVE_TRY(const auto credentials, access_.current());
  CARVE_TRY(const auto made, identity(credentials));
  return {};
}

Result<std::shared_ptr<TlsIdentity>> Caller::identity(const Credentials& credentials) {
  const MutexLock lock(mutex_);
  if (identity_ && identity_of_ == credentials.generation) return identity_;
  auto made = make_identity(credentials);
  // The files may be half-written: keep the working identity until they are read again.
  if (!made) return identity_ ? Result<std::shared_ptr<TlsIdentity>>(identity_) : made;
  identity_ = *made;
  identity_of_ = credentials.generation;
  idle_.clear();
  return made;
}

std::unique_ptr<Channel> Caller::take_idle(std::uint64_t generation) {
  const MutexLock lock(mutex_);
  const auto oldest = clock_.now() - kIdle;
  std::erase_if(idle_, [&](const Idle& one) { return one.generation != generation || one.since < oldest; });
  while (!idle_.empty()) {
    auto channel = std::move(idle_.back().channel);
    idle_.pop_back();
    if (channel->is_quiet()) return channel;
  }
  return nullptr;
}

void Caller::keep_idle(std::unique_ptr<Channel> channel, std::uint64_t generation) {
  const MutexLock lock(mutex_);
  if (idle_.size() >= limits_.idle) idle_.erase(idle_.begin());
  idle_.push_back({std::move(channel), generation, clock_.now()});
}

Result<void> Caller::pace(const Patience& patience) {
  Clock::Time due;
  {
    const MutexLock lock(mutex_);
    const auto now = clock_.now();
    const Clock::Duration step = std::chrono::nanoseconds(std::chrono::seconds(1)) / std::max(limits_.per_second, 1U);
    next_ = std::max(next_, now - limits_.saved_up * step) + step;
    due = next_;
    if (due <= now) return {};
    if (due - now > patience.deadline - std::chrono::steady_clock::now()) {
      next_ -= step;
      return fail(Code::kResourceExhausted, "the rate limit of this client (" + std::to_string(limits_.per_second) +
                                                " requests a second) is exceeded");
    }
  }
  if (!clock_.sleep_until(due, patience.stop)) return fail(Code::kCancelled, "stopped");
  return {};
}

Result<HttpResponse> Caller::once(HttpRequest& request, Patience* patience, std::uint64_t* generation) {
  CARVE_TRY(const auto credentials, this->credentials(patience));
  CARVE_TRY(auto identity, this->identity(credentials));
  request.token = credentials.token;
  *generation = credentials.generation;
  const bool can_repeat = request.method == "GET";
  if (auto channel = take_idle(credentials.generation)) {
    auto response = channel->exchange(request, false, kLargestAnswer, *patience);
    if (response && response->keep_alive) keep_idle(std::move(channel), credentials.generation);
    const bool ended = !response && response.error().code == Code::kUnavailable && !channel->answered();
    if (!ended || !can_repeat) return unknown_if_lost(request, std::move(response));
  }
  auto connected = Channel::connect(credentials.endpoint, std::move(identity), *patience);
  if (!connected) {
    access_.doubt();  // the authority may have changed
    return tl::unexpected(connected.error());
  }
  auto channel = std::move(*connected);
  auto response = channel->exchange(request, false, kLargestAnswer, *patience);
  if (response && response->keep_alive) keep_idle(std::move(channel), credentials.generation);
  return unknown_if_lost(request, std::move(response));
}

Result<std::string> Caller::call(HttpRequest request, std::chrono::milliseconds limit, const std::stop_token& stop) {
  auto patience = patience_for(limit, stop);
  bool renewed = false;
  while (true) {
    CARVE_TRY_VOID(pace(patience));
    std::uint64_t used = 0;
    auto response = once(request, &patience, &used);
    if (!response) {
      return fail_in(request.method + " " + request.target.substr(0, request.target.find('?')), response.error());
    }
    if (response->status >= 200 && response->status < 300) return std::move(response->body);
    if (response->status == 401 && !std::exchange(renewed, true)) {
      access_.refuse(request.token);
      const auto fresh = credentials(&patience);
      if (!fresh) return fail_in("401 (not authenticated)", fresh.error());
      if (fresh->token != request.token || fresh->generation != used) continue;
    }
    const bool asked = response->retry_after && (response->status == 429 || response->status >= 500);
    if (!asked) return refusal(request, *response);
    const auto wait = std::max<std::chrono::milliseconds>(*response->retry_after, kLeastWait);
    if (std::chrono::steady_clock::now() + wait >= patience.deadline) return refusal(request, *response);
    if (!clock_.sleep_for(wait, stop)) return fail(Code::kCancelled, "stopped");
  }
}

Result<std::unique_ptr<Channel>> Caller::stream(HttpRequest request, const std::stop_token& stop) {
  auto patience = patience_for(limits_.call, stop);
  CARVE_TRY_VOID(pace(patience));
  CARVE_TRY(const auto credentials, this->credentials(&patience));
  CARVE_TRY(auto identity, this->identity(credentials));
  request.token = credentials.token;
  auto connected = Channel::connect(credentials.endpoint, std::move(identity), patience);
  if (!connected) {
    access_.doubt();  // the authority may have changed
    return tl::unexpected(connected.error());
  }
  auto channel = std::move(*connected);
  CARVE_TRY(const auto response, channel->exchange(request, true, kLargestAnswer, patience));
  if (response.status == 200) return channel;
  if (response.status == 401) access_.refuse(request.token);
  if (response.retry_after && response.status != 410) {
    const auto wait = std::min<Clock::Duration>(*response.retry_after, limits_.most_back_off);
    (void)clock_.sleep_for(wait, stop);
  }
  return refusal(request, response);
}

}  // namespace carve::kube
