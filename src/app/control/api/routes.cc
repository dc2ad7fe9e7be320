#include "app/control/api/routes.h"

#include <algorithm>
#include <utility>

namespace carve::control {
namespace {

using Ended = ControlMetrics::Ended;
using Verb = ControlMetrics::Verb;

HttpResponse plain(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

Answered json(std::string text) { return {{200, "application/json", std::move(text)}, Ended::kOk}; }

/// The outcome of an extender's answer. Its `Error` is the last member, and is empty on success.
Ended outcome_of_extender(std::string_view text) {
  const auto at = text.rfind("\"Error\":");
  if (at == std::string_view::npos) return Ended::kOk;
  return text.substr(at + 8, 2) == "\"\"" ? Ended::kOk : Ended::kRefused;
}

Ended outcome_of_review(std::string_view text) {
  return text.find("\"allowed\":true") == std::string_view::npos ? Ended::kRefused : Ended::kOk;
}

Route post(std::string path, Caller caller, Verb verb, Answers::Text answer, Ended (*outcome)(std::string_view)) {
  Route route{"POST", std::move(path), false, caller, false, {}, verb, {}};
  route.answer = [answer = std::move(answer), outcome](const HttpRequest& ask) {
    auto answered = json(answer(ask.body));
    answered.outcome = outcome(answered.reply.body);
    return answered;
  };
  return route;
}

/// The same for handlers that read the model: replies 503 until the model is complete; the scheduler retries.
Route post_synced(std::string path, Verb verb, const Answers& answers, const Answers::Text& answer) {
  auto route = post(std::move(path), Caller::kScheduler, verb, answer, outcome_of_extender);
  route.answer = [inner = std::move(route.answer), synced = answers.synced](const HttpRequest& ask) {
    if (synced()) return inner(ask);
    return Answered{plain(503, "the cluster is not known yet: the first lists are incomplete"), Ended::kFailed};
  };
  return route;
}

/// Two routes of a call about a pod's nodes: kube-scheduler's, which the leader answers, and that to which a follower
/// forwards it.
void add_at_leader(std::vector<Route>& rows, const std::string& path, Verb verb, const Answers& answers,
                   const Answers::Text& own, bool waits = false) {
  if (!own) return;
  auto answer = own;
  const std::string here = path + std::string(kHere);
  if (answers.at_leader) {
    answer = [own, here, at_leader = answers.at_leader](std::string_view call) { return at_leader(here, call, own); };
  }
  rows.push_back(post_synced(path, verb, answers, answer));
  rows.back().waits = waits;
  rows.back().waits_now = answers.forwards;
  if (!answers.at_leader) return;
  rows.push_back(post_synced(here, verb, answers, own));
  rows.back().waits = waits;
}

Route get(std::string path, Caller caller, Verb verb, std::function<Answered(const HttpRequest&)> answer) {
  return {"GET", std::move(path), false, caller, false, {}, verb, std::move(answer)};
}

/// Any caller: the token of the request decides what the caller may see. The answers may wait for the API server.
void add_dashboard(std::vector<Route>& rows, const Answers& answers) {
  const auto answer = [dashboard = answers.dashboard](const HttpRequest& ask) {
    auto reply = dashboard(ask);
    const auto outcome = reply.status < 400 ? Ended::kOk : reply.status < 500 ? Ended::kRefused : Ended::kFailed;
    return Answered{std::move(reply), outcome};
  };
  for (const char* path : {"/", "/dashboard", "/v1"}) {
    rows.push_back(get(path, Caller::kAny, Verb::kRead, answer));
    rows.back().below = rows.back().path != "/";
    rows.back().waits = true;
  }
}

}  // namespace

const Route* Routes::find(const HttpRequest& ask, bool* path_known) const {
  *path_known = false;
  for (const auto& row : rows_) {
    const bool under = row.below && ask.path.size() > row.path.size() && ask.path.starts_with(row.path) &&
                       ask.path[row.path.size()] == '/';
    if (ask.path != row.path && !under) continue;
    *path_known = true;
    if (ask.method == row.method) return &row;
  }
  return nullptr;
}

bool Routes::may(const Route& route, const HttpRequest& ask) const {
  switch (route.caller) {
    case Caller::kAny:
      return true;
    case Caller::kCertified:
      return !ask.peer.empty();
    case Caller::kScheduler:
      return !scheduler_.empty() && ask.peer == scheduler_;
  }
  return false;
}

bool Routes::waits(const HttpRequest& ask) const {
  bool path_known = false;
  const Route* route = find(ask, &path_known);
  if (route == nullptr || !may(*route, ask)) return false;
  return route->waits || (route->waits_now && route->waits_now());
}

HttpResponse Routes::answer(const HttpRequest& ask) const {
  bool path_known = false;
  const Route* route = find(ask, &path_known);
  const auto begin = clock_.now();
  const auto refuse = [&](int status, std::string text) {
    metrics_.observe(Verb::kOther, Ended::kRefused, clock_.now() - begin);
    return plain(status, std::move(text));
  };
  if (!path_known) return refuse(404, "unknown path");
  if (route == nullptr) return refuse(405, "method not allowed for this path");
  if (!may(*route, ask)) {
    return refuse(403, ask.peer.empty() ? "this path requires a client certificate from carve-control's authority"
                                        : "client " + ask.peer.substr(0, 64) + " may not call this path");
  }
  auto answered = route->answer(ask);
  metrics_.observe(route->verb, answered.outcome, clock_.now() - begin);
  return std::move(answered.reply);
}

std::vector<Route> secure_routes(const Answers& answers) {
  std::vector<Route> rows;
  add_at_leader(rows, "/scheduler/filter", Verb::kFilter, answers, answers.filter);
  add_at_leader(rows, "/scheduler/prioritize", Verb::kPrioritize, answers, answers.prioritize);
  add_at_leader(rows, "/scheduler/choose", Verb::kFilter, answers, answers.choose);
  // It may read the disruption budgets.
  add_at_leader(rows, "/scheduler/preempt", Verb::kPreempt, answers, answers.preempt, true);
  if (answers.unschedulable) {
    rows.push_back(post(std::string(kUnschedulablePods), Caller::kScheduler, Verb::kOther, answers.unschedulable,
                        outcome_of_extender));
  }
  if (answers.bind) {
    rows.push_back(post_synced("/scheduler/bind", Verb::kBind, answers, answers.bind));
    rows.back().waits = true;
  }
  if (answers.bind_here) {
    rows.push_back(post_synced(std::string(kBindHere), Verb::kBind, answers, answers.bind_here));
    rows.back().waits = true;
  }
  rows.push_back(post("/webhook/mutate", Caller::kAny, Verb::kMutate, answers.mutate, outcome_of_review));
  rows.push_back(post("/webhook/validate", Caller::kAny, Verb::kValidate, answers.validate, outcome_of_review));
  rows.push_back(get("/v1/cluster", Caller::kCertified, Verb::kRead,
                     [cluster = answers.cluster](const HttpRequest&) { return json(cluster()); }));
  rows.back().waits = true;  // it does not block, but takes long with thousands of nodes
  if (answers.dashboard) add_dashboard(rows, answers);
  return rows;
}

std::vector<Route> plain_routes(const Answers& answers, bool gpushare) {
  std::vector<Route> rows;
  rows.push_back(get("/healthz", Caller::kAny, Verb::kOther, [](const HttpRequest&) {
    return Answered{plain(200, "ok"), Ended::kOk};
  }));
  rows.push_back(get("/readyz", Caller::kAny, Verb::kOther, [not_ready = answers.not_ready](const HttpRequest&) {
    auto why = not_ready();
    const bool ready = why.empty();
    return Answered{plain(ready ? 200 : 503, ready ? "ok" : std::move(why)), ready ? Ended::kOk : Ended::kFailed};
  }));
  rows.push_back(get("/metrics", Caller::kAny, Verb::kOther, [metrics = answers.metrics](const HttpRequest&) {
    return Answered{{200, std::string(codec::kMetricsType), metrics()}, Ended::kOk};
  }));
  rows.back().waits = true;  // it takes long with thousands of nodes, as the routes below, and must not delay a probe
  if (!gpushare) return rows;
  // gpushare's, gpu-admission's and Elastic GPU's
  const auto readonly = [&](const char* path, Verb verb, const Answers::Text& answer) {
    rows.push_back(post_synced(path, verb, answers, answer));
    rows.back().caller = Caller::kAny;  // like the originals; it only reads
    rows.back().waits = true;
  };
  for (const char* filter : {"/gpushare-scheduler/filter", "/scheduler/predicates", "/scheduler/filter"})
    readonly(filter, Verb::kFilter, answers.filter_readonly);
  readonly("/scheduler/priorities", Verb::kPrioritize, answers.rank_readonly);
  const std::string path = "/gpushare-scheduler/inspect";
  const auto inspect = [inspect = answers.gpushare_inspect, path](const HttpRequest& ask) {
    return json(inspect(ask.path.size() > path.size() ? std::string_view(ask.path).substr(path.size() + 1) : ""));
  };
  rows.push_back(get(path, Caller::kAny, Verb::kRead, inspect));
  rows.back().below = true;
  rows.back().waits = true;
  rows.push_back(get("/scheduler/status", Caller::kAny, Verb::kRead,
                     [status = answers.elastic_status](const HttpRequest&) { return json(status()); }));
  rows.back().waits = true;
  return rows;
}

}  // namespace carve::control
