#include "adapter/http/peer_client.h"

#include <algorithm>

#include "adapter/kube/channel.h"

namespace carve::http {
namespace {

constexpr std::size_t kMostIdle = 4;
constexpr std::size_t kLargestAnswer = 4 << 20;  // a refusal of each of 5,000 nodes is about 0.5 MiB

Result<kube::Credentials> credentials_of(const PeerAccess& access, const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
    return fail(Code::kInvalidArgument,
                "\"" + address.substr(0, 64) + "\": not an address of a replica; legal is HOST:PORT");
  kube::Credentials credentials;
  credentials.endpoint = {address.substr(0, colon), address.substr(colon + 1), access.name};
  credentials.authority = access.authorities;
  credentials.certificate = access.certificate;
  credentials.key = access.key;
  return credentials;
}

}  // namespace

PeerClient::PeerClient() = default;
PeerClient::~PeerClient() = default;

std::unique_ptr<kube::Channel> PeerClient::take(const std::string& address, const std::string& certificate) {
  const MutexLock lock(mutex_);
  std::erase_if(idle_, [&](const Idle& one) {
    return one.address != address || one.certificate != certificate || !one.channel->is_quiet();
  });
  if (idle_.empty()) return nullptr;
  auto channel = std::move(idle_.back().channel);
  idle_.pop_back();
  return channel;
}

Result<std::string> PeerClient::post(const PeerAccess& access, const std::string& address, const std::string& path,
                                     std::string body, std::chrono::milliseconds limit) {
  const kube::Patience patience{std::chrono::steady_clock::now() + limit, {}};
  auto channel = take(address, access.certificate);
  if (!channel) {
    CARVE_TRY(const auto credentials, credentials_of(access, address));
    CARVE_TRY(auto identity, kube::make_identity(credentials));
    CARVE_TRY(channel, kube::Channel::connect(credentials.endpoint, std::move(identity), patience));
  }
  CARVE_TRY(auto answer, channel->exchange({"POST", path, "application/json", std::move(body), ""}, false,
                                           kLargestAnswer, patience));
  if (answer.keep_alive) {
    const MutexLock lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back({address, access.certificate, std::move(channel)});
  }
  if (answer.status != 200)
    return fail(Code::kUnavailable, "status " + std::to_string(answer.status) + ": " + answer.body.substr(0, 200));
  return std::move(answer.body);
}

}  // namespace carve::http
