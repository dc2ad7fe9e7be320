#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/control/metrics.h"
#include "base/clock.h"
#include "port/http.h"

namespace carve::control {

/// Who may ask.
enum class Asker : std::uint8_t {
  kAnybody,
  kKnown,      // whoever shows a certificate that our authority signed
  kScheduler,  // kube-scheduler, by the CN of its certificate
};

struct Answered {
  HttpResponse reply;
  ControlMetrics::Ended outcome = ControlMetrics::Ended::kOk;
};

/// One row of the table: what is asked, who may, and who answers.
struct Route {
  std::string_view method;
  std::string path;
  bool below = false;  // the path and everything under it
  Asker asker = Asker::kAnybody;
  bool waits = false;  // the answer waits for the API server, or takes long: the next calls are not to stand behind it
  ControlMetrics::Verb verb = ControlMetrics::Verb::kOther;
  std::function<Answered(const HttpRequest&)> answer;
};

/// A port's table of routes. Safe from any thread.
class Routes {
 public:
  Routes(std::vector<Route> rows, std::string scheduler, ControlMetrics& metrics, const Clock& clock)
      : rows_(std::move(rows)), scheduler_(std::move(scheduler)), metrics_(metrics), clock_(clock) {}

  /// 404, 405 and 403 in plain words; else the row's answer, counted.
  [[nodiscard]] HttpResponse answer(const HttpRequest& ask) const;
  /// Whether the answer may wait for somebody, or takes long. Who may not ask waits for nobody.
  [[nodiscard]] bool waits(const HttpRequest& ask) const;

 private:
  [[nodiscard]] const Route* find(const HttpRequest& ask, bool* path_known) const;
  [[nodiscard]] bool may(const Route& route, const HttpRequest& ask) const;

  std::vector<Route> rows_;
  std::string scheduler_;
  ControlMetrics& metrics_;
  const Clock& clock_;
};

/// Where one replica hands a bind call to another: it ends there, whoever leads.
inline constexpr std::string_view kBindHere = "/scheduler/bind-here";

/// Where one replica tells the leader of pods that it turned away.
inline constexpr std::string_view kUnschedulablePods = "/scheduler/turned-away";

/// What the routes are answered by. Each is safe from any thread; what is empty has no route.
struct Answers {
  using Text = std::function<std::string(std::string_view)>;
  Text filter, prioritize, bind, preempt;  // kube-scheduler's extender calls
  Text look;                               // filter for whoever asks: it changes no ranking, and nobody goes for it
  Text choose;                             // filter and prioritize in one
  Text turned_away;                        // another replica's, of a pod that no node served
  Text bind_here;                          // another replica's, which believes that this one leads
  Text mutate, validate;                   // AdmissionReviews
  std::function<std::string()> cluster;    // GET /v1/cluster
  std::function<std::string()> metrics;    // Prometheus text
  std::function<std::string(std::string_view node)> gpushare_inspect;
  std::function<bool()> synced;  // the cluster is known: before it every node looks as if it had no card
  /// Why this replica cannot serve yet; empty: it can.
  std::function<std::string()> not_ready;
};

/// The port over TLS: the scheduler, the API server's webhooks, the read API.
[[nodiscard]] std::vector<Route> secure_routes(const Answers& answers);
/// The plain port: health, metrics, and with `gpushare` that system's filter and inspect. Nothing here changes
/// anything.
[[nodiscard]] std::vector<Route> plain_routes(const Answers& answers, bool gpushare);

}  // namespace carve::control
