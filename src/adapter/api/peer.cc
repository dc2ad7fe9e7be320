#include "adapter/api/peer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "adapter/process/text_file.h"
#include "base/fd.h"

namespace carve::api {
namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5

bool always() { return true; }

/// Returns true once the process of this pidfd has ended: poll() then reports the pidfd as readable.
std::function<bool()> ended(Fd pidfd) {
  return [held = std::make_shared<const Fd>(std::move(pidfd))] {
    pollfd item = {held->get(), POLLIN, 0};
    return ::poll(&item, 1, 0) != 0;
  };
}

/// The effective user of a process, from "Uid: real effective saved filesystem" in its status; nullopt: it has ended.
std::optional<std::uint32_t> user_of(std::int32_t pid) {
  const auto status = process::read_text("/proc/" + std::to_string(pid) + "/status");
  const auto begin = status ? status->find("\nUid:") : std::string::npos;
  if (begin == std::string::npos) return std::nullopt;
  std::istringstream fields(status->substr(begin + 5));
  std::uint32_t real = 0;
  std::uint32_t effective = 0;
  if (!(fields >> real >> effective)) return std::nullopt;
  return effective;
}

Result<std::function<bool()>> hold_on_peer(int fd, std::int32_t pid, std::uint32_t uid) {
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (::getsockopt(fd, SOL_SOCKET, kPeerPidfd, &pidfd, &size) == 0) return ended(Fd(pidfd));
  if (errno == ENOPROTOOPT) return hold_of(pid, uid);
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) return tl::unexpected(errno_error(errno, "peer's pidfd"));
  return always;  // the process has already ended
}

}  // namespace

Result<std::function<bool()>> hold_of(std::int32_t pid, std::uint32_t uid) {
  if (pid <= 0) return always;  // the process is in another PID namespace
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd && errno == ESRCH) return always;
  if (!pidfd) return tl::unexpected(errno_error(errno, "open a pidfd of process " + std::to_string(pid)));
  auto gone = ended(std::move(pidfd));
  if (user_of(pid) != uid) return always;
  return gone;  // the process of this pidfd ran as `uid`, or has ended by now
}

Result<Caller> peer_of(int fd) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return tl::unexpected(errno_error(errno, "peer credentials"));
  }
  Caller caller;
  caller.pid = credentials.pid;
  caller.uid = credentials.uid;
  CARVE_TRY(caller.gone, hold_on_peer(fd, caller.pid, caller.uid));
  std::array<gid_t, 1024> groups = {};
  size = sizeof(groups);
  caller.gids.push_back(credentials.gid);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0) {
    caller.gids.insert(caller.gids.end(), groups.begin(), groups.begin() + size / sizeof(gid_t));
  }
  return caller;
}

}  // namespace carve::api
