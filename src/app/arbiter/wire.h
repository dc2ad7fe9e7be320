#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

// Packets with descriptors over unix sockets, as both ends of the arbiter's sockets need them.
namespace carve::arbiter {

/// One packet, without waiting. False: the other side does not take it now, or is gone.
bool send_packet(int socket, const void* bytes, std::size_t size, const std::vector<int>& fds);

struct Packet {
  std::size_t size = 0;  // 0: the other side closed
  std::vector<Fd> fds;
};
/// One packet of at most `size` bytes; a longer one is cut, and says its true length. Every descriptor that came along
/// is handed on: closing one that a tenant sent may take as long as the tenant likes (closer.h).
///   errors  kUnavailable: nothing there now (EAGAIN) or broken
Result<Packet> receive_packet(int socket, void* bytes, std::size_t size);

/// A listening SOCK_SEQPACKET socket at `path`, replacing one on which nobody listens.
///   errors  kAlreadyExists: somebody does
Result<Fd> listen_at(const std::string& path, unsigned mode);

}  // namespace carve::arbiter
