#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/control/api/metrics.h"
#include "base/clock.h"
#include "port/http.h"

namespace carve::control {

/// The permitted callers of a route.
enum class Caller : std::uint8_t {
  kAny,
  kCertified,  // any client with a certificate from our authority
  kScheduler,  // kube-scheduler, by the CN of its certificate
};

struct Answered {
  HttpResponse reply;
  ControlMetrics::Ended outcome = ControlMetrics::Ended::kOk;
};

/// One row of the table: the request, its permitted callers, and its handler.
struct Route {
  std::string_view method;
  std::string path;
  bool below = false;  // also everything under the path
  Caller caller = Caller::kAny;
  bool waits = false;  // the handler waits for the API server, or takes long: other calls must not queue behind it
  std::function<bool()> waits_now = {};  // the handler waits only while this returns true; empty: `waits` decides alone
  ControlMetrics::Verb verb = ControlMetrics::Verb::kOther;
  std::function<Answered(const HttpRequest&)> answer;
};

/// The table of routes of one port. Safe from any thread.
class Routes {
 public:
  Routes(std::vector<Route> rows, std::string scheduler, ControlMetrics& metrics, const Clock& clock)
      : rows_(std::move(rows)), scheduler_(std::move(scheduler)), metrics_(metrics), clock_(clock) {}

  /// Replies 404, 405 or 403 as plain text; else calls the row's handler. Counts every request.
  [[nodiscard]] HttpResponse answer(const HttpRequest& ask) const;
  /// The answer may block or take long (Route::waits). False for a caller that is not permitted.
  [[nodiscard]] bool waits(const HttpRequest& ask) const;

 private:
  [[nodiscard]] const Route* find(const HttpRequest& ask, bool* path_known) const;
  [[nodiscard]] bool may(const Route& route, const HttpRequest& ask) const;

  std::vector<Route> rows_;
  std::string scheduler_;
  ControlMetrics& metrics_;
  const Clock& clock_;
};

/// The path where one replica forwards a bind call to another. The receiver never forwards it, even if it does not
/// lead.
inline constexpr std::string_view kBindHere = "/scheduler/bind-here";

/// What a replica appends to the path of a call about a pod's nodes when it forwards the call to the leader
/// (LeaderRoute). The receiver answers such a call itself.
inline constexpr std::string_view kHere = "-here";

/// The path where a replica reports to the leader the pods that it rejected.
inline constexpr std::string_view kUnschedulablePods = "/scheduler/turned-away";

/// The handlers of the routes. Each is safe from any thread; an empty optional handler gets no route.
struct Answers {
  using Text = std::function<std::string(std::string_view)>;
  Text filter, prioritize, bind, preempt;  // kube-scheduler's extender calls
  Text filter_readonly, rank_readonly;     // for any caller: they change no ranking and cause no eviction
  Text choose;                             // filter and prioritize in one call
  Text unschedulable;                      // another replica's report of a pod that no node served
  Text bind_here;                          // from another replica, for which this one is the leader
  /// Answers filter, prioritize, choose and preempt calls: forwards the call to that path of the leader, or calls `own`
  /// (LeaderRoute). Empty: every call is answered here.
  std::function<std::string(std::string_view path, std::string_view call, const Text& own)> at_leader;
  std::function<bool()> forwards;  // at_leader would forward a call now, so it may block; empty with at_leader
  Text mutate, validate;                   // AdmissionReviews
  std::function<std::string()> cluster;    // GET /v1/cluster
  std::function<std::string()> metrics;    // Prometheus text
  std::function<std::string(std::string_view node)> gpushare_inspect;
  std::function<std::string()> elastic_status;
  std::function<HttpResponse(const HttpRequest&)> dashboard;  // the web page and the read API; checks the token
  std::function<bool()> synced;  // the model is complete; before that every node would appear to have no card
  /// Why this replica cannot serve yet; empty: it can serve.
  std::function<std::string()> not_ready;
};

/// The TLS port: the scheduler's calls, the API server's webhooks, the read API, the dashboard.
[[nodiscard]] std::vector<Route> secure_routes(const Answers& answers);
/// The plain port: health, metrics, and with `gpushare` the routes of gpushare, gpu-admission and Elastic GPU by which
/// a caller reads: filter, inspect and status. These routes change nothing.
[[nodiscard]] std::vector<Route> plain_routes(const Answers& answers, bool gpushare);

}  // namespace carve::control
