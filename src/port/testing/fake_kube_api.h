#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "port/kube_api.h"

namespace carve::testing {

/// A Kubernetes API server in memory. It behaves like the real one as far as a client can notice: it sets and checks
/// UID and resourceVersion; it returns 404 and 409 like the real one; `status` is written only through its subresource
/// (if the object has been written with a status); `binding` sets spec.nodeName and merges its annotations; `eviction`
/// deletes the pod (with dryRun it does not); both check the precondition on the UID; fieldSelector and labelSelector
/// (equality) filter lists and watches.
///
/// Differences from the real one: no validation, no defaults, no admission. A strategic merge merges the conditions of
/// a status by type, and replaces other lists like a plain merge. A server-side apply creates or merges, and tracks no
/// field owners. Safe from any thread. No call waits for time to pass, except wait_writes and wait_watches.
class FakeKubeApi final : public KubeApi {
 public:
  /// A write that arrived, including one that failed.
  struct Write {
    std::string verb;  // create, replace, patch, remove
    std::string path;
    std::string body;
    KubePatch kind = KubePatch::kMerge;
    Query query;
    bool done = false;  // the object was changed (also true where the client got an unknown outcome)
  };
  /// A failure of the next matching calls.
  struct Fault {
    std::string verb;  // empty: any of get, list, create, replace, patch, remove
    std::string path;  // a substring of the path; empty: any
    Code code = Code::kUnavailable;
    bool done = false;  // the call takes effect and only its answer is lost (with kDeadlineExceeded: unknown outcome)
    int times = 1;
  };

  FakeKubeApi();
  ~FakeKubeApi() override;

  Result<std::string> get(const std::string& path, const Query& query = {}) override;
  Result<std::vector<std::string>> list(const std::string& path, const Query& query = {}) override;
  Result<std::string> create(const std::string& path, const std::string& body) override;
  Result<std::string> replace(const std::string& path, const std::string& body) override;
  Result<std::string> patch(const std::string& path, KubePatch kind, const std::string& body,
                            const Query& query = {}) override;
  Result<void> remove(const std::string& path, const std::string& body = {}) override;
  void watch(const std::string& path, const Query& query, const KubeSink& sink,
             const std::stop_token& stop) override;

  /// A write by another client: creates or replaces the object at `path` ("/api/v1/namespaces/a/pods/b"). It ignores
  /// faults and is not recorded. Name and namespace are taken from the path. Returns the object as stored.
  std::string put(const std::string& path, const std::string& body);
  /// The answer to a GET of a path that is not an object, verbatim ("/version", a proxied pod).
  void answer(const std::string& path, std::string text);
  /// A delete by another client.
  void erase(const std::string& path);
  /// The object as stored, regardless of faults.
  [[nodiscard]] std::optional<std::string> object(const std::string& path) const;

  void fail_next(Fault fault);
  /// The server is away: every call fails with kUnavailable; watches report trouble once, and replace when it is back.
  void set_away(bool away);
  /// Every new call blocks until this is reset, and watches deliver nothing, as with a server that stopped reading.
  void set_stalled(bool stalled);
  /// The server drops the resource versions of all watches (410): each watch gets a new `replace`.
  void expire_watches();

  [[nodiscard]] std::vector<Write> writes() const;
  /// Waits until at least `count` writes arrived; false: the time limit passed first.
  [[nodiscard]] bool wait_writes(std::size_t count, std::chrono::milliseconds limit) const;
  /// Waits until at least `count` watches exist and each has delivered all changes so far.
  [[nodiscard]] bool wait_watches(std::size_t count, std::chrono::milliseconds limit) const;
  /// The number of calls of one verb so far ("get", "list", …, "watch").
  [[nodiscard]] std::size_t calls(const std::string& verb) const;

 private:
  struct State;   // the objects, as documents
  struct Viewer;  // one watch

  Result<std::string> write(Write call);
  Result<std::optional<Fault>> enter(const std::string& verb, const std::string& path);
  bool deliver(Viewer& viewer, const KubeSink& sink, const std::stop_token& stop);

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::unique_ptr<State> state_;
};

}  // namespace carve::testing
