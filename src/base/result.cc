#include "base/result.h"

#include <cerrno>
#include <cstring>

namespace carve {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kCancelled: return "cancelled";
    case Code::kUnknown: return "unknown";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kDeadlineExceeded: return "deadline exceeded";
    case Code::kNotFound: return "not found";
    case Code::kAlreadyExists: return "already exists";
    case Code::kPermissionDenied: return "permission denied";
    case Code::kResourceExhausted: return "resource exhausted";
    case Code::kFailedPrecondition: return "failed precondition";
    case Code::kAborted: return "aborted";
    case Code::kOutOfRange: return "out of range";
    case Code::kUnimplemented: return "unimplemented";
    case Code::kInternal: return "internal";
    case Code::kUnavailable: return "unavailable";
    case Code::kDataLoss: return "data loss";
    case Code::kUnauthenticated: return "unauthenticated";
  }
  return "unknown";
}

Error errno_error(int err, std::string_view context) {
  Code code = Code::kUnknown;
  switch (err) {
    case ENOENT: case ESRCH: case ENXIO: case ENODEV: code = Code::kNotFound; break;
    case EEXIST: code = Code::kAlreadyExists; break;
    case EACCES: case EPERM: case EROFS: code = Code::kPermissionDenied; break;
    case ENOSPC: case ENOMEM: case EDQUOT: case EMFILE: case ENFILE: code = Code::kResourceExhausted; break;
    case EINVAL: code = Code::kInvalidArgument; break;
    case ETIMEDOUT: code = Code::kDeadlineExceeded; break;
    case ECONNREFUSED: case ECONNRESET: case EPIPE: case EAGAIN: code = Code::kUnavailable; break;
    case EBUSY: case ENOTEMPTY: code = Code::kFailedPrecondition; break;
    case ENOSYS: case EOPNOTSUPP: code = Code::kUnimplemented; break;
    default: break;
  }
  return Error{code, std::string(context) + ": " + std::strerror(err)};
}

}  // namespace carve
