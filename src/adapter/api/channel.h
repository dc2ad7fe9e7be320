#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

// Frames on a unix stream socket: a length (4 bytes, little endian), then so many bytes.
namespace carve::api {

/// kOutOfRange: longer than `max_bytes` (nothing was read of it); kUnavailable: the other side closed;
/// kDeadlineExceeded: a started frame did not become whole in time, or none started within `idle`.
[[nodiscard]] Result<std::string> receive_frame(int fd, std::size_t max_bytes,
                                                std::chrono::milliseconds idle);
[[nodiscard]] Result<void> send_frame(int fd, std::string_view bytes);

/// A listening socket at `path`, 0666: who may ask for what is decided by peer credentials, with words. A
/// stale socket (nobody listens) is replaced.
///   errors  kAlreadyExists: somebody listens there, whether it accepts or not
[[nodiscard]] Result<Fd> listen_at(const std::string& path);
inline constexpr std::chrono::milliseconds kAccept{2'000};  // the queue of an agent that lives is full for moments only
/// Waits at most `patience` (> 0) for a place in the queue of those who are to be accepted.
///   errors  kUnavailable with the reason in words: no socket, or nobody listens; kDeadlineExceeded: somebody does, and
///           accepts nobody; kPermissionDenied
[[nodiscard]] Result<Fd> connect_to(const std::string& path, std::chrono::milliseconds patience = kAccept);

/// True when the other side has closed.
[[nodiscard]] bool peer_closed(int fd);

}  // namespace carve::api
