#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace carve::kubelet {

/// A socket file that answers from the moment it is visible: it is bound and listens under a hidden name and is then
/// renamed (a connect between bind and listen would be refused, and gRPC waits a second before it retries). Mode 0600.
/// The destructor removes the file only if it is still this socket, so that a successor's socket stays.
///
/// A process that is killed between bind and rename leaves the hidden file. The next open() in the folder removes it.
/// An flock on the folder lets one process at a time do this, so that no socket is removed before it listens; the
/// kernel releases the lock when its holder ends.
class UnixListener {
 public:
  ///   errors  kInvalidArgument: the path is too long for a socket; the system's
  ///   cost    waits while another process executes this function for the same folder: a few system calls
  static Result<UnixListener> open(const std::string& path);
  UnixListener(UnixListener&&) = default;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener() { remove(); }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// False: the file was removed or replaced.
  [[nodiscard]] bool in_place() const;
  /// Accepts the next connection, if any; it is non-blocking. Only root and the process's own user are accepted.
  [[nodiscard]] Fd accept() const;
  void remove();

 private:
  UnixListener(Fd fd, std::string path, ino_t inode)
      : fd_(std::move(fd)), path_(std::move(path)), inode_(inode) {}
  Fd fd_;
  std::string path_;
  ino_t inode_ = 0;
};

/// Connects to a Unix socket; the connection is non-blocking.
///   errors  the system's; kNotFound: the file does not exist; kUnavailable: no process listens, or its backlog is full
[[nodiscard]] Result<Fd> connect_unix(const std::string& path);

/// Removes the sockets in `folder` on which no process listens, if their names start with `begin` and end with `end`.
/// Other files stay, and so do sockets with a full backlog.
void remove_dead_sockets(const std::string& folder, std::string_view begin, std::string_view end = "");

/// An identifier of the file at a path, which differs for a later file of the same name; 0: the file does not exist.
[[nodiscard]] std::uint64_t file_identity(const std::string& path);

}  // namespace carve::kubelet
