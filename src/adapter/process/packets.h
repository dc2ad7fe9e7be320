#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

// A line between two processes of ours that has no name anywhere: whole packets, in order, until one of the two ends.
namespace carve {

/// Both ends; closed in what is executed.
[[nodiscard]] Result<std::pair<Fd, Fd>> packet_pair();

/// Waits for room at most `patience`.
///   errors  kUnavailable: the other side does not read; kNotFound: it has ended; kInvalidArgument: an empty packet, or
///           one that no buffer takes
[[nodiscard]] Result<void> send_packet(int fd, std::string_view packet, std::chrono::milliseconds patience = {});

enum class Received : std::uint8_t { kPacket, kNothing, kEnd };
/// The next packet, without waiting. kEnd: the other side has ended, and all that it sent was received.
[[nodiscard]] Received receive_packet(int fd, std::string* packet);

}  // namespace carve
