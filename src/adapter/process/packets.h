#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

// A connection without a name between two processes of Carve: complete packets, in order, until one of the two ends.
namespace carve::process {

/// Both ends of a new connection, with close-on-exec set.
[[nodiscard]] Result<std::pair<Fd, Fd>> packet_pair();

/// Sends one packet. Waits at most `patience` for free space in the buffer.
///   errors  kUnavailable: the peer does not read; kNotFound: the peer has ended; kInvalidArgument: the packet is empty
///           or longer than the buffer
[[nodiscard]] Result<void> send_packet(int fd, std::string_view packet, std::chrono::milliseconds patience = {});

enum class Received : std::uint8_t { kPacket, kNothing, kEnd };
/// Receives the next packet without waiting. kEnd: the peer has ended and all of its packets were received.
[[nodiscard]] Received receive_packet(int fd, std::string* packet);

}  // namespace carve::process
