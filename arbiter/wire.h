#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

// Packets with descriptors over unix sockets, for both ends of the arbiter's sockets.
namespace carve::arbiter {

/// Sends one packet without waiting. False: the peer does not accept it now, or is gone.
bool send_packet(int socket, const void* bytes, std::size_t size, const std::vector<int>& fds);

struct Packet {
  std::size_t size = 0;  // 0: the peer closed the connection
  std::vector<Fd> fds;
};
/// Receives one packet of at most `size` bytes. A longer packet is cut, and `Packet::size` is its full length. All
/// received descriptors are returned and none is closed here, because the close of a tenant's descriptor may take as
/// long as the tenant likes (closer.h).
///   errors  kUnavailable: there is no packet now (EAGAIN), or the connection is broken
Result<Packet> receive_packet(int socket, void* bytes, std::size_t size);

/// A listening SOCK_SEQPACKET socket at `path`. Replaces a socket on which no process listens.
///   errors  kAlreadyExists: a process listens there
Result<Fd> listen_at(const std::string& path, unsigned mode);

}  // namespace carve::arbiter
