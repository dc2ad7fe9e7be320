#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace carve::kubelet {

/// A socket file that answers from the moment it is seen: it is bound and listening under a hidden name, then
/// renamed into place (a dial between bind and listen would be refused, and gRPC waits a second before the
/// next). Mode 0600. It is removed at the end only while it is still ours, so that a successor's stays.
///
/// Who is killed between the two leaves the hidden name: the next one to open in that folder removes it. One at a time
/// does, by the kernel's lock on the folder, which goes with its holder: no socket is removed that does not listen yet.
class UnixListener {
 public:
  ///   errors  kInvalidArgument: the path is too long for a socket; errno's for the rest
  ///   cost    waits while another process is in here for the same folder: some system calls
  static Result<UnixListener> open(const std::string& path);
  UnixListener(UnixListener&&) = default;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener() { remove(); }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// False when the file was removed or replaced.
  [[nodiscard]] bool in_place() const;
  /// The next connection, non-blocking, or none. Only root and the own user may come in.
  [[nodiscard]] Fd accept() const;
  void remove();

 private:
  UnixListener(Fd fd, std::string path, ino_t inode)
      : fd_(std::move(fd)), path_(std::move(path)), inode_(inode) {}
  Fd fd_;
  std::string path_;
  ino_t inode_ = 0;
};

/// A connection to a unix socket, non-blocking afterwards.
///   errors  errno's: ENOENT and ECONNREFUSED are kNotFound and kUnavailable
[[nodiscard]] Result<Fd> connect_unix(const std::string& path);

/// Removes the sockets in `folder` whose names begin and end so and that nobody listens on. What is no socket stays,
/// and so does one that is busy.
void remove_dead_sockets(const std::string& folder, std::string_view begin, std::string_view end = "");

/// The file behind a path, told apart from one that came later under the same name; 0 when there is none.
[[nodiscard]] std::uint64_t file_identity(const std::string& path);

}  // namespace carve::kubelet
