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

/// A Kubernetes API server in memory. It understands its objects as far as a client can notice: UID and
/// resourceVersion are given and checked, 404 and 409 as the real one, `status` is written only through its
/// subresource (where the object has been written with one), `binding` sets spec.nodeName and merges its annotations,
/// `eviction` removes (with dryRun it does not), both with their precondition on the UID,
/// fieldSelector and labelSelector (equality) filter lists and watches alike.
///
/// Not as the real one: no validation, no defaults, no admission; strategic merge merges the conditions of a status by
/// type, and replaces other lists like a plain merge; server-side apply makes or merges and keeps no field owners. Safe
/// from any thread; nothing here waits for time to pass, except wait_writes and wait_watches.
class FakeKubeApi final : public KubeApi {
 public:
  /// A write that arrived, also when the answer was a failure.
  struct Write {
    std::string verb;  // create, replace, patch, remove
    std::string path;
    std::string body;
    KubePatch kind = KubePatch::kMerge;
    Query query;
    bool done = false;  // the object is changed (true also where the client was told "unknown")
  };
  /// What happens to the next calls that it fits.
  struct Fault {
    std::string verb;  // empty: any of get, list, create, replace, patch, remove
    std::string path;  // a part of the path; empty: any
    Code code = Code::kUnavailable;
    bool done = false;  // the call takes effect, only its answer is lost (with kDeadlineExceeded: unknown)
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

  /// Somebody else's write: makes or replaces the object at `path` ("/api/v1/namespaces/a/pods/b"), past every
  /// fault and unrecorded. Name and namespace are taken from the path. Returns the object as stored.
  std::string put(const std::string& path, const std::string& body);
  /// What a GET of a path that is no object answers, as it stands ("/version", a proxied pod).
  void answer(const std::string& path, std::string text);
  /// Somebody else's delete.
  void erase(const std::string& path);
  /// The object as stored, past every fault.
  [[nodiscard]] std::optional<std::string> object(const std::string& path) const;

  void fail_next(Fault fault);
  /// The server is away: every call is kUnavailable; watches report trouble once, and replace when it is back.
  void set_away(bool away);
  /// Every call that comes blocks until unstalled, and watches deliver nothing: a server that stopped reading.
  void set_stalled(bool stalled);
  /// The server forgot where the watches were (410): each gets a new `replace`.
  void expire_watches();

  [[nodiscard]] std::vector<Write> writes() const;
  /// Waits until at least `count` writes arrived; false: not in time.
  [[nodiscard]] bool wait_writes(std::size_t count, std::chrono::milliseconds limit) const;
  /// Waits until each of at least `count` watches has delivered all that happened so far.
  [[nodiscard]] bool wait_watches(std::size_t count, std::chrono::milliseconds limit) const;
  /// Calls of one verb so far ("get", "list", …, "watch").
  [[nodiscard]] std::size_t calls(const std::string& verb) const;

 private:
  struct State;   // objects, as documents
  struct Viewer;  // one watch

  Result<std::string> write(Write call);
  Result<std::optional<Fault>> enter(const std::string& verb, const std::string& path);
  bool deliver(Viewer& viewer, const KubeSink& sink, const std::stop_token& stop);

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::unique_ptr<State> state_;
};

}  // namespace carve::testing
