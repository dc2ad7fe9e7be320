#include "adapter/api/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "adapter/api/channel.h"
#include "adapter/api/messages.h"
#include "adapter/api/peer.h"

namespace carve::api {
namespace {
constexpr std::chrono::milliseconds kLook{250};  // how often an idle thread checks whether to stop
}  // namespace

Result<std::unique_ptr<Server>> Server::open(const std::string& path, AgentApi& api, Log& log,
                                             const ServerLimits& limits) {
  CARVE_TRY(auto listener, listen_at(path));
  return std::unique_ptr<Server>(new Server(path, std::move(listener), api, log, limits));
}

Server::Server(std::string path, Fd listener, AgentApi& api, Log& log, const ServerLimits& limits)
    : path_(std::move(path)), listener_(std::move(listener)), api_(api), log_(log), limits_(limits) {}

Server::~Server() {
  reap(true);
  ::unlink(path_.c_str());
}

void Server::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd item = {listener_.get(), POLLIN, 0};
    if (::poll(&item, 1, static_cast<int>(kLook.count())) > 0) accept_one(stop);
    reap(false);
  }
  reap(true);
}

void Server::reap(bool all) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (!all && !it->done) {
      ++it;
      continue;
    }
    if (all) ::shutdown(it->fd.get(), SHUT_RDWR);
    it->thread.join();
    it = connections_.erase(it);
  }
}

void Server::accept_one(const std::stop_token& stop) {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd) {
    // Without a free descriptor or memory the connection stays in the backlog, and poll() would return immediately
    // again.
    const bool short_of = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (short_of) ::poll(nullptr, 0, static_cast<int>(kLook.count()));
    return;
  }
  auto caller = peer_of(fd.get());
  if (!caller) {
    // The connection has the last descriptor, and the pidfd needs another one: refuse it; other connections wait.
    if (caller.error().code != Code::kResourceExhausted) return;
    static_cast<void>(send_frame(
        fd.get(),
        encode_reply(Result<void>(fail(Code::kResourceExhausted, "the agent has no free file descriptors or memory: " +
                                                                     caller.error().what + "; retry later")))));
    fd.reset();
    ::poll(nullptr, 0, static_cast<int>(kLook.count()));
    return;
  }
  if (!admit(*caller)) {
    note_refused(*caller);
    static_cast<void>(send_frame(
        fd.get(), encode_reply(Result<void>(
                      fail(Code::kResourceExhausted, "too many concurrent connections to the agent; retry later")))));
    return;
  }
  auto& connection = connections_.emplace_back();
  connection.fd = std::move(fd);
  connection.thread =
      Thread("api-caller", [this, &connection, peer = *caller, stop] { serve(connection, peer, stop); });
}

bool Server::admit(const Caller& caller) {
  const int limit = limits_.connections - (caller.uid == 0 ? 0 : limits_.kept_for_root);
  if (static_cast<int>(connections_.size()) >= limit) return false;
  const MutexLock lock(mutex_);
  int& mine = per_user_[caller.uid];
  if (caller.uid != 0 && mine >= limits_.per_user) return false;
  ++mine;
  return true;
}

/// Logs at most one line every 10 s: any local user can cause refusals at any rate, and the log shares its file system
/// with all sockets and pages.
void Server::note_refused(const Caller& caller) {
  ++refused_;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_line_) return;
  next_line_ = now + std::chrono::seconds(10);
  log_.warn("connection refused: too many concurrent connections",
            {{"uid", caller.uid}, {"pid", caller.pid}, {"refused", std::exchange(refused_, 0)}});
}

void Server::serve(Connection& connection, const Caller& caller, const std::stop_token& stop) {
  const int fd = connection.fd.get();
  auto last = std::chrono::steady_clock::now();  // when the last request was answered
  while (!stop.stop_requested()) {
    auto bytes = receive_frame(fd, kMaxRequestBytes, std::min(kLook, limits_.idle));
    const bool nothing = !bytes && bytes.error().code == Code::kDeadlineExceeded && !peer_closed(fd);
    if (nothing && std::chrono::steady_clock::now() - last < limits_.idle) continue;
    if (!bytes) {
      // A frame that is too long is answered with an error and the connection is closed: the start of the next frame
      // is unknown.
      if (bytes.error().code == Code::kOutOfRange) {
        static_cast<void>(
            send_frame(fd, encode_reply(Result<void>(fail(Code::kInvalidArgument, bytes.error().what)))));
      }
      break;
    }
    if (!send_frame(fd, answer(*bytes, caller, fd, stop))) break;
    last = std::chrono::steady_clock::now();
  }
  {
    const MutexLock lock(mutex_);
    if (--per_user_[caller.uid] == 0) per_user_.erase(caller.uid);
  }
  ::shutdown(fd, SHUT_RDWR);
  connection.done = true;
}

std::string Server::answer(std::string_view bytes, const Caller& caller, int fd,
                           const std::stop_token& stop) {
  auto request = decode_request(bytes);
  if (!request) return encode_reply(Result<void>(tl::unexpected(request.error())));
  switch (request->op) {
    case Op::kAllocate: {
      auto grant = api_.allocate(caller, request->allocate,
                                 [fd, &stop] { return stop.stop_requested() || peer_closed(fd); });
      // The client has gone: release the slice immediately instead of waiting for the start timeout.
      if (grant && !request->allocate.keep && peer_closed(fd)) {
        static_cast<void>(api_.release(caller, grant->slice, true));
      }
      return encode_reply(grant);
    }
    case Op::kJoin:
      return encode_reply(api_.join(caller, request->slice));
    case Op::kRelease:
      return encode_reply(api_.release(caller, request->slice, request->kill));
    case Op::kView:
      return encode_reply(api_.view(caller));
    case Op::kHistory:
      return encode_reply(api_.history(caller, request->history));
  }
  return encode_reply(Result<void>(fail(Code::kInternal, "unknown operation")));
}

}  // namespace carve::api
