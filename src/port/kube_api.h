#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace carve {

enum class KubePatch : std::uint8_t { kJson, kMerge, kStrategic, kApply };

/// One object that a watch reports. The body is the whole object; of a deleted one its last state.
struct KubeChange {
  enum class Kind : std::uint8_t { kPut, kDeleted } kind = Kind::kPut;
  std::string object;
};

/// What list + watch delivers, on the watch's own thread. `replace` is the state at a moment (the first one,
/// and again whenever the server forgot where we were); changes follow it in order.
struct KubeSink {
  std::function<void(const std::vector<std::string>& objects)> replace;
  std::function<void(const KubeChange&)> change;
  std::function<void(const Error&)> trouble;  // the connection is away; it is tried again
};

/// The Kubernetes API server. Paths are absolute ("/api/v1/nodes/a"), bodies JSON. Every call has a deadline,
/// authenticates itself with what is current, keeps the client's rate, and obeys Retry-After. Safe from any
/// thread.
///   errors  kNotFound (404), kAlreadyExists (409 on create), kAborted (409 on write: changed meanwhile),
///           kInvalidArgument (400, 422), kPermissionDenied (401, 403), kResourceExhausted (429),
///           kUnavailable: nothing was done: no connection, or the server said to come again later (5xx with
///           Retry-After), or to a read that it cannot (5xx);
///           kInternal: the server gave up on a write (5xx), kDeadlineExceeded: no answer in time, or a write was on
///           its way when the connection broke: the outcome is unknown (may_be_done). Read before deciding anything
///           that may not happen twice; a write is repeated where the server asks for it with Retry-After alone
class KubeApi {
 public:
  using Query = std::vector<std::pair<std::string, std::string>>;
  virtual ~KubeApi() = default;
  virtual Result<std::string> get(const std::string& path, const Query& query = {}) = 0;
  /// All items of a collection, page by page.
  virtual Result<std::vector<std::string>> list(const std::string& path, const Query& query = {}) = 0;
  virtual Result<std::string> create(const std::string& path, const std::string& body) = 0;
  virtual Result<std::string> replace(const std::string& path, const std::string& body) = 0;
  virtual Result<std::string> patch(const std::string& path, KubePatch kind, const std::string& body,
                                    const Query& query = {}) = 0;
  virtual Result<void> remove(const std::string& path, const std::string& body = {}) = 0;
  /// List, then watch, for ever, until `stop`. Returns only then.
  virtual void watch(const std::string& path, const Query& query, const KubeSink& sink,
                     const std::stop_token& stop) = 0;
};

/// Of a write that failed: it may have been done, or may be yet.
[[nodiscard]] inline bool may_be_done(const Error& error) {
  return error.code == Code::kDeadlineExceeded || error.code == Code::kInternal;
}

}  // namespace carve
