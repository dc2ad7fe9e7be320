#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

// Frames on a Unix stream socket: a length (4 bytes, little endian), then that number of bytes.
namespace carve::api {

/// Reads one frame.
///   errors  kOutOfRange: the frame is longer than `max_bytes` (its bytes are not read); kUnavailable: the peer closed
///           the connection; kDeadlineExceeded: no frame began within `idle`, or one did not arrive completely in time
[[nodiscard]] Result<std::string> receive_frame(int fd, std::size_t max_bytes,
                                                std::chrono::milliseconds idle);
[[nodiscard]] Result<void> send_frame(int fd, std::string_view bytes);

/// A listening socket at `path` with mode 0666, because the server checks permissions by peer credentials and answers
/// refusals with a reason. Replaces a stale socket (one on which no process listens).
///   errors  kAlreadyExists: a process listens on it, whether it accepts connections or not
[[nodiscard]] Result<Fd> listen_at(const std::string& path);
inline constexpr std::chrono::milliseconds kAccept{2'000};  // the backlog of a running agent is full only for moments
/// Connects. Waits at most `patience` (> 0) for a place in the backlog.
///   errors  kUnavailable with the reason: no socket, or no process listens; kDeadlineExceeded: a process listens but
///           does not accept; kPermissionDenied
[[nodiscard]] Result<Fd> connect_to(const std::string& path, std::chrono::milliseconds patience = kAccept);

/// True when the peer has closed the connection.
[[nodiscard]] bool peer_closed(int fd);

}  // namespace carve::api
