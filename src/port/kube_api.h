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

/// One object change that a watch reports. The body is the whole object; for a deleted object its last state.
struct KubeChange {
  enum class Kind : std::uint8_t { kPut, kDeleted } kind = Kind::kPut;
  std::string object;
};

/// What list + watch delivers, on the watch's own thread. `replace` is the complete state at one moment: first after
/// the list, and again whenever the server no longer has the watch's resource version. Changes follow it in order.
struct KubeSink {
  std::function<void(const std::vector<std::string>& objects)> replace;
  std::function<void(const KubeChange&)> change;
  std::function<void(const Error&)> trouble;  // the connection failed; it is retried
};

/// The Kubernetes API server. Paths are absolute ("/api/v1/nodes/a"), bodies are JSON. Every call has a deadline,
/// authenticates with the current credentials, respects the client's rate limit and obeys Retry-After. Safe from any
/// thread.
///   errors  kNotFound (404), kAlreadyExists (409 on create), kAborted (409 on write: changed meanwhile),
///           kInvalidArgument (400, 422), kPermissionDenied (401, 403), kFailedPrecondition (429 of an eviction: a
///           PodDisruptionBudget does not allow it), kResourceExhausted (any other 429: the server is overloaded; or
///           this client's rate limit; nothing was done). kUnavailable: nothing was done, because there is no
///           connection, the server asked to retry later (5xx with Retry-After), or a read failed (5xx). kInternal:
///           the server failed during a write (5xx). kDeadlineExceeded: no answer in time, or the connection broke
///           during a write. After the last two the outcome of a write is unknown (may_be_done): read the object
///           before deciding anything that must not happen twice. A write is repeated only where the server asks for
///           it with Retry-After
class KubeApi {
 public:
  using Query = std::vector<std::pair<std::string, std::string>>;
  virtual ~KubeApi() = default;
  virtual Result<std::string> get(const std::string& path, const Query& query = {}) = 0;
  /// All items of a collection, fetched page by page.
  virtual Result<std::vector<std::string>> list(const std::string& path, const Query& query = {}) = 0;
  virtual Result<std::string> create(const std::string& path, const std::string& body) = 0;
  virtual Result<std::string> replace(const std::string& path, const std::string& body) = 0;
  virtual Result<std::string> patch(const std::string& path, KubePatch kind, const std::string& body,
                                    const Query& query = {}) = 0;
  virtual Result<void> remove(const std::string& path, const std::string& body = {}) = 0;
  /// Lists, then watches until `stop` is requested, and returns only then.
  virtual void watch(const std::string& path, const Query& query, const KubeSink& sink,
                     const std::stop_token& stop) = 0;
};

/// True for a failed write that may have been done, or may still be done.
[[nodiscard]] inline bool may_be_done(const Error& error) {
  return error.code == Code::kDeadlineExceeded || error.code == Code::kInternal;
}

}  // namespace carve
