#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "base/result.h"

namespace carve {

/// The path of a unix socket as a sockaddr_un.
///   errors  kInvalidArgument: the path is longer than the kernel accepts (107 bytes)
[[nodiscard]] inline Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return fail(Code::kInvalidArgument, path + ": " + std::to_string(path.size()) +
                                            " bytes; the path of a unix socket has at most " +
                                            std::to_string(sizeof(address.sun_path) - 1));
  }
  path.copy(address.sun_path, path.size());
  return address;
}

}  // namespace carve
