#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "adapter/http/peer_client.h"
#include "adapter/http/server.h"
#include "adapter/kube/kube_client.h"
#include "adapter/tls/certificates.h"
#include "app/control/admission/admission.h"
#include "app/control/api/metrics.h"
#include "app/control/api/read_api.h"
#include "app/control/api/routes.h"
#include "app/control/api/settings_refused.h"
#include "app/control/bind/bind_route.h"
#include "app/control/bind/binder.h"
#include "app/control/claims/claim_controller.h"
#include "app/control/bind/leader_route.h"
#include "app/control/bind/static_pod_binder.h"
#include "app/control/leader/epochs.h"
#include "app/control/leader/leader.h"
#include "app/control/leader/takeover_resync.h"
#include "app/control/preempt/preempt_verb.h"
#include "app/control/preempt/preemption_candidates.h"
#include "app/control/preempt/mode_drain.h"
#include "app/control/preempt/preemptor.h"
#include "app/control/schedule/bind_call.h"
#include "app/control/schedule/extender.h"
#include "app/control/schedule/node_nominator.h"
#include "app/control/schedule/requeuer.h"
#include "app/control/schedule/unschedulable_pods.h"
#include "app/control/state/cluster_model.h"
#include "app/control/state/policy_watcher.h"
#include "app/control/state/unhealthy_cards.h"
#include "app/events/event_recorder.h"
#include "base/thread.h"
#include "cmd/cluster_config.h"
#include "cmd/config_watch.h"
#include "cmd/control_dashboard.h"
#include "cmd/control_port.h"
#include "cmd/options.h"
#include "cmd/process_metrics.h"
#include "cmd/start_again.h"
#include "cmd/stop_signals.h"
#include "codec/claims/elastic_objects.h"
#include "codec/extender/extender.h"
#include "codec/views/elastic_status.h"
#include "codec/views/gpushare_inspect.h"
#include "port/kept_agent.h"

// carve control: wires the parts of control and runs them until SIGTERM.
namespace carve::cmd {
namespace {

using codec::MetricsText;

// After SIGTERM: the time for the Service's clients to learn that this replica ends. The replica reports "not ready",
// answers every request and closes its connection. It is as long as kube-proxy may need to route new connections
// elsewhere.
constexpr std::chrono::seconds kNotice{5};
constexpr std::chrono::seconds kPeerCall{2};    // the leader's answer; a leader that hangs is soon replaced
constexpr std::chrono::seconds kPeerChoice{1};  // its answer to a call about nodes, which waits for no server
constexpr unsigned kBindsPerSecond = 1000;      // binds must not be slower than the scheduler that sends them
constexpr std::chrono::seconds kLeaseCall{2};   // a read of the Lease, or its renewal
constexpr std::chrono::seconds kGrace{6};       // for the requests that have arrived; the pod has 15 s

/// This process's identity in the Lease. A restarted process gets another one, because the leadership of the previous
/// process is not its own.
std::string identity_of(const ControlOptions& options) {
  char host[256] = "";
  if (options.identity.empty() && ::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  std::random_device random;
  return control::holder_identity(
      fmt::format("{}_{:08x}{:08x}", options.identity.empty() ? host : options.identity, random(), random()),
      options.advertise);
}

tls::CertificateNames names_of(const ControlOptions& options) {
  tls::CertificateNames names;
  names.namespace_name = options.namespace_name;
  return names;
}

/// The clients of the API server, by the time that their calls may take.
struct Apis {
  std::unique_ptr<KubeApi> watches;  // lists, watches, certificates, events
  std::unique_ptr<KubeApi> lease;    // separate: a renewal never queues behind another call
  std::unique_ptr<KubeApi> bind;     // kube-scheduler waits for its answers
  std::unique_ptr<KubeApi> dashboard;  // separate: a viewer's calls never delay a decision
};

///   errors  kube::open()'s
Result<Apis> open_apis(const std::string& kubeconfig, Clock& clock, Log& log) {
  kube::Limits lease;
  lease.call = kLeaseCall;
  kube::Limits bind;
  bind.call = control::Binder::kWrite;
  bind.per_second = bind.saved_up = kBindsPerSecond;
  bind.idle = http::Limits{}.waiting_threads;  // each of which may be writing a Binding
  Apis apis;
  CARVE_TRY(apis.watches, kube::open(kubeconfig, clock, log, {}));
  CARVE_TRY(apis.lease, kube::open(kubeconfig, clock, log, lease));
  CARVE_TRY(apis.bind, kube::open(kubeconfig, clock, log, bind));
  kube::Limits dashboard;
  dashboard.per_second = dashboard.saved_up = 2 * dashboard::AgentSamples::kAsksPerSecond;
  CARVE_TRY(apis.dashboard, kube::open(kubeconfig, clock, log, dashboard));
  return apis;
}

/// One replica of control. Its parts are declared in the order in which they use each other; a function passed to a
/// part may use a later part, because it is called only after the construction.
class Control {
 public:
  struct Inputs {
    ControlOptions options;
    ClusterConfig config;
    const PolicyRow& policy;
    ConfigWatch& settings;
    Apis apis;
    Clock& clock;
    Log& log;
  };
  explicit Control(Inputs inputs) : in_(std::move(inputs)) {}
  ///   errors  kUnavailable, kInvalidArgument: a port cannot be opened
  Result<void> run(const sigset_t& stop_signals);

 private:
  using Policy = std::function<const PolicyRow&(const control::PodEntry&, const std::string&)>;
  control::Answers answers();
  std::string why_not_ready() const;
  std::string metrics_text();
  void write_ports(MetricsText* text) const;
  void report_to_leader(const codec::UnschedulablePodsNote& note);
  Result<std::string> ask_peer(const std::string& address, std::string_view path, std::string_view call,
                               std::chrono::milliseconds limit = kPeerCall);
  std::vector<Thread> start_threads();

  const Inputs in_;
  const std::string identity_ = identity_of(in_.options);
  const codec::DialectSettings dialects_ = in_.config.dialects();
  KubeApi& api_ = *in_.apis.watches;
  KubeApi& bind_api_ = *in_.apis.bind;
  Clock& clock_ = in_.clock;
  Log& log_ = in_.log;
  std::atomic<bool> leaving_ = false;
  control::ControlMetrics metrics_;
  // Events with a pod's cards wait until no Binding waits, because in a burst they delayed the Bindings.
  events::EventRecorder events_{api_, "", clock_, log_, "carve-control", [this] { return binder_.busy(); }};
  const std::function<void(codec::EventNote)> post_event_ = [this](codec::EventNote note) {
    events_.warn(std::move(note));
  };

  // state
  control::ClaimBook claims_{dialects_, log_};
  control::ClusterModel model_{{dialects_, &claims_}, clock_, log_};
  control::PolicyWatcher policy_watcher_{in_.policy, log_, post_event_,
                                         [this](const PlacementRules& rules) { model_.set_quotas(rules.quotas); }};
  control::UnhealthyCards unhealthy_{model_, log_, post_event_};
  const Policy card_policy_ = [this](const control::PodEntry& pod, const std::string& node) -> const PolicyRow& {
    return control::card_policy(*policy_watcher_.rules(), pod.object.ask, *model_.snapshot(), node);
  };

  // leader
  control::TakeoverResync takeover_resync_{api_, model_, clock_};
  control::Leader leader_{
      {.api = *in_.apis.lease,
       .clock = clock_,
       .log = log_,
       .known_epoch = [this] { return control::epochs_so_far(model_, clock_); },
       .caught_up = [this](std::uint64_t term) { return takeover_resync_(term); }},
      {.namespace_name = in_.options.namespace_name, .lease = "carve-control", .identity = identity_}};
  tls::Certificates certificates_{api_, clock_, log_, names_of(in_.options)};
  http::PeerClient peers_;

  // admission
  control::Admission admission_{dialects_,
                                {.scheduler = in_.config.scheduler, .visible = in_.config.visible},
                                [this](control::AdmissionFaults faults) { metrics_.observe_refusal(faults); }};

  // claims
  control::ClaimController claim_controller_{{.book = claims_,
                                              .model = model_,
                                              .leader = leader_,
                                              .api = bind_api_,
                                              .clock = clock_,
                                              .log = log_,
                                              .policy = card_policy_,
                                              .post_event = post_event_}};

  // schedule
  control::UnschedulablePods unschedulable_;
  control::Extender extender_{{dialects_, &claims_}, [this] { return policy_watcher_.rules(); },
                              [this] {
                                model_.expire();
                                return model_.snapshot();
                              },
                              [this](const Owner& owner, const FitView& fit) {
                                metrics_.observe_filter(fit);
                                unschedulable_.observe(owner, fit, clock_.now());
                              },
                              &clock_,
                              [this] { claim_controller_.reserve_rooms(); },
                              [this](const std::string& namespace_name, const Owner& owner,
                                     std::vector<PartRequest> parts) {
                                return model_.within_quota(namespace_name, owner, std::move(parts));
                              }};
  control::NodeNominator node_nominator_{
      {.model = model_,
       .leader = leader_,
       .api = bind_api_,
       .clock = clock_,
       .log = log_,
       .unschedulable_pods = unschedulable_,
       .choose = [this](const control::PodEntry& pod, const std::set<std::string>& excluded) {
         return extender_.choose_anywhere(pod, excluded);
       }}};
  control::Requeuer requeuer_{{.model = model_,
                               .leader = leader_,
                               .unschedulable_pods = unschedulable_,
                               .api = bind_api_,
                               .clock = clock_,
                               .log = log_,
                               .node_nominator = &node_nominator_}};

  // bind
  control::Binder binder_{
      {.model = model_,
       .leader = leader_,
       .api = bind_api_,
       .clock = clock_,
       .log = log_,
       .settings = dialects_,
       .policy = card_policy_,
       .post_event = post_event_,
       .sent_for = [this](const Owner& owner, const std::string& node) { return extender_.sent_for(owner, node); },
       .why_sent = [this](const Owner& owner, const std::string& node) { return extender_.why_sent(owner, node); },
       .claims = &claims_}};
  control::BindRoute bind_route_{{.leads = [this] { return leader_.epoch() != 0; },
                                  .holder = [this] { return leader_.holder(); },
                                  .bind = [this](std::string_view call) { return binder_.bind(call); },
                                  .ask =
                                      [this](const std::string& address, std::string_view call) {
                                        return ask_peer(address, control::kBindHere,
                                                        control::with_chosen_cards(extender_, call));
                                      }}};
  control::LeaderRoute leader_route_{
      {.leads = [this] { return leader_.epoch() != 0; },
       .holder = [this] { return leader_.holder(); },
       .ask = [this](const std::string& address, std::string_view path,
                     std::string_view call) { return ask_peer(address, path, call, kPeerChoice); },
       .clock = clock_}};
  control::StaticPodBinder static_pod_binder_{{.model = model_,
                                               .leader = leader_,
                                               .api = bind_api_,
                                               .clock = clock_,
                                               .log = log_,
                                               .settings = dialects_,
                                               .policy = card_policy_,
                                               .post_event = post_event_}};

  // preempt
  control::Preemptor preemptor_{{.model = model_,
                                 .leader = leader_,
                                 .api = bind_api_,
                                 .clock = clock_,
                                 .log = log_,
                                 .unschedulable_pods = unschedulable_,
                                 .policy = card_policy_,
                                 .post_event = post_event_,
                                 .forward_to_leader = [this](const auto& note) { report_to_leader(note); },
                                 .node_nominator = &node_nominator_}};
  control::ModeDrain mode_drain_{{.model = model_,
                                  .leader = leader_,
                                  .api = bind_api_,
                                  .clock = clock_,
                                  .log = log_,
                                  .post_event = post_event_}};
  control::PreemptVerb preempt_verb_{{.model = model_,
                                      .settings = dialects_,
                                      .rules = [this] { return policy_watcher_.rules(); },
                                      .budgets = [this] { return control::read_budgets(bind_api_); },
                                      .on_preempt = [this](const Owner& owner) { unschedulable_.forget(owner.uid); },
                                      .log = log_,
                                      .claims = &claims_}};

  // api
  ControlDashboard dashboard_{{.model = model_,
                               .claims = claims_,
                               .requests = {dialects_, &claims_},
                               .rules = [this] { return *policy_watcher_.rules(); },
                               .api = *in_.apis.dashboard,
                               .namespace_name = in_.options.namespace_name,
                               .clock = clock_}};
  control::Routes secure_routes_{control::secure_routes(answers()), tls::CertificateNames{}.client, metrics_, clock_};
  control::Routes plain_routes_{
      control::plain_routes(answers(), in_.options.gpushare_http || in_.config.gpushare_http), {}, metrics_, clock_};
  ControlPort secure_{{.listen = in_.options.listen, .identity = {}, .limits = {}, .waits = {}}, secure_routes_, log_};
  ControlPort plain_{
      {.listen = in_.options.plain_listen, .identity = {}, .limits = {}, .waits = {}}, plain_routes_, log_};
};

void Control::report_to_leader(const codec::UnschedulablePodsNote& note) {
  const auto address = control::address_in(leader_.holder());
  if (address.empty()) return;
  const auto reported = ask_peer(address, control::kUnschedulablePods, codec::encode_turned_away(note));
  if (!reported) log_.warn("the leader cannot be notified of an unschedulable pod", {{"error", reported.error().what}});
}

Result<std::string> Control::ask_peer(const std::string& address, std::string_view path, std::string_view call,
                                      std::chrono::milliseconds limit) {
  const auto client = certificates_.client();
  if (client.pair.empty()) return fail(Code::kUnavailable, "this replica has no client certificate yet");
  const auto names = names_of(in_.options);
  return peers_.post({client.pair.certificate, client.pair.key, client.authorities,
                      names.service + "." + names.namespace_name + ".svc"},
                     address, std::string(path), std::string(call), limit);
}

control::Answers Control::answers() {
  control::Answers answers;
  answers.filter = [this](std::string_view call) { return extender_.filter_to_place(call); };
  answers.filter_readonly = [this](std::string_view call) { return extender_.filter(call); };
  answers.rank_readonly = [this](std::string_view call) { return extender_.rank(call); };
  answers.prioritize = [this](std::string_view call) { return extender_.prioritize(call); };
  answers.choose = [this](std::string_view call) { return extender_.choose(call); };
  answers.bind = [this](std::string_view call) { return bind_route_.bind(call); };
  answers.preempt = [this](std::string_view call) { return preempt_verb_.answer(call); };
  answers.unschedulable = [this](std::string_view call) {
    const auto stored = unschedulable_.put_report(call, clock_.now());
    return codec::binding_result(stored ? std::string() : stored.error().what);
  };
  answers.at_leader = [this](std::string_view path, std::string_view call, const control::Answers::Text& own) {
    return leader_route_.answer(path, call, own);
  };
  answers.forwards = [this] { return leader_route_.forwards(); };
  answers.bind_here = [this](std::string_view call) { return binder_.bind(call); };
  answers.mutate = [this](std::string_view review) { return admission_.mutate(review); };
  answers.validate = [this](std::string_view review) { return admission_.validate(review); };
  answers.cluster = [this] {
    return codec::to_json(control::view_with_whys(model_, claims_, *policy_watcher_.rules()));
  };
  answers.metrics = [this] { return metrics_text(); };
  answers.gpushare_inspect = [this](std::string_view node) {
    return codec::gpushare_inspect(control::view_of(model_, claims_), in_.config.gpushare_unit, node);
  };
  answers.elastic_status = [this] { return codec::elastic_status(control::view_of(model_, claims_)); };
  answers.dashboard = [this](const HttpRequest& ask) { return dashboard_.answer(ask); };
  answers.synced = [this] { return model_.synced(); };
  answers.not_ready = [this] { return why_not_ready(); };
  return answers;
}

std::string Control::why_not_ready() const {
  if (leaving_) return "this replica is shutting down";
  if (!model_.synced()) return "the first lists of nodes, GPU objects and pods have not arrived";
  if (!policy_watcher_.answered()) return "the placement rules have not arrived";
  if (!claims_.answered()) return "the first lists of Elastic GPU objects have not arrived";
  if (!unhealthy_.answered()) return "the lists of unhealthy cards have not arrived";
  if (!secure_.is_open()) return "there is no certificate yet";
  return {};
}

void Control::write_ports(MetricsText* text) const {
  const std::pair<const char*, http::ServerCounts> ports[] = {{"https", secure_.counts()}, {"http", plain_.counts()}};
  text->family("carve_control_connections", MetricsText::Kind::kGauge, "Open connections.");
  for (const auto& [port, counts] : ports) text->sample(std::uint64_t{counts.open}, {{"port", port}});
  text->family("carve_control_connections_total", MetricsText::Kind::kCounter,
               "Connections: accepted, refused because too many were open, evicted because they were idle.");
  for (const auto& [port, counts] : ports) {
    text->sample(counts.accepted, {{"port", port}, {"what", "accepted"}});
    text->sample(counts.refused, {{"port", port}, {"what", "refused"}});
    text->sample(counts.evicted, {{"port", port}, {"what", "evicted"}});
  }
  text->family("carve_control_malformed_requests_total", MetricsText::Kind::kCounter,
               "Requests that were malformed, too large or too slow.");
  for (const auto& [port, counts] : ports) text->sample(counts.malformed, {{"port", port}});
}

std::string Control::metrics_text() {
  MetricsText text;
  text.family("carve_control_ready", MetricsText::Kind::kGauge, "1: this replica is ready to serve.");
  text.sample(std::uint64_t{why_not_ready().empty() ? 1U : 0U});
  text.family("carve_control_certificate_expiry_timestamp_seconds", MetricsText::Kind::kGauge,
              "Expiry time of the serving certificate.");
  text.sample(std::chrono::duration<double>(certificates_.good_until().time_since_epoch()).count());
  text.family("carve_control_leader", MetricsText::Kind::kGauge, "1: this replica is the leader.");
  text.sample(std::uint64_t{leader_.leads_until(clock_.now()) ? 1U : 0U});
  text.family("carve_control_terms_total", MetricsText::Kind::kCounter, "Times that this replica became the leader.");
  text.sample(leader_.terms());
  metrics_.write(&text);
  control::write_cluster_stats(model_.stats(), &text);
  const auto cluster = model_.snapshot();
  control::write_cards(*cluster, &text);
  control::write_free_room(*cluster, &text);
  control::write_settings(in_.settings.good(), &text);
  control::write_placement(policy_watcher_.stats(), &text);
  control::write_quotas(model_.quota_uses(), &text);
  control::write_bindings(binder_.stats(), &text);
  control::write_preemptions(preemptor_.stats(), &text);
  control::write_node_nominator(node_nominator_.stats(), &text);
  text.family("carve_control_events_dropped_total", MetricsText::Kind::kCounter,
              "Events that were dropped because more than 1,024 writes waited.");
  text.sample(events_.dropped());
  write_ports(&text);
  write_process(&text);
  return text.text();
}

std::vector<Thread> Control::start_threads() {
  using Stop = const std::stop_token&;
  const auto watch = [this](const std::string& path, const KubeApi::Query& query, KubeSink sink) {
    return [this, path, query, sink = std::move(sink)](Stop stop) { api_.watch(path, query, sink, stop); };
  };
  const std::string rules_in = "/api/v1/namespaces/" + in_.options.namespace_name + "/configmaps";
  std::vector<Thread> all;
  all.emplace_back("watch-nodes", watch("/api/v1/nodes", {}, model_.nodes()));
  all.emplace_back("watch-gpus", watch("/apis/elasticgpu.io/v1alpha1/gpus", {}, model_.gpus()));
  all.emplace_back("watch-classes", watch(std::string(codec::kElasticGpuClasses), {}, claims_.classes()));
  all.emplace_back("watch-egpus", watch(std::string(codec::kElasticGpus), {}, claims_.gpus()));
  all.emplace_back("watch-claims", watch(std::string(codec::kElasticGpuClaims), {}, claims_.claims()));
  all.emplace_back("watch-pods", watch("/api/v1/pods", {}, model_.pods()));
  all.emplace_back("watch-rules", watch(rules_in, control::PolicyWatcher::query(), policy_watcher_.sink()));
  all.emplace_back("watch-unhealthy", watch(control::UnhealthyCards::kPath, {}, unhealthy_.sink()));
  all.emplace_back("certificates", [this](Stop stop) {
    certificates_.run([this](const tls::Serving& serving) { secure_.serve_with(serving); }, stop);
  });
  all.emplace_back("takeover-resync", [this](Stop stop) { takeover_resync_.run(stop); });
  all.emplace_back("leader", [this](Stop stop) { leader_.run(stop); });
  all.emplace_back("binder", [this](Stop stop) { binder_.run(clock_, stop); });
  all.emplace_back("static-pods", [this](Stop stop) { static_pod_binder_.run(stop); });
  all.emplace_back("requeuer", [this](Stop stop) { requeuer_.run(stop); });
  all.emplace_back("preemptor", [this](Stop stop) { preemptor_.run(stop); });
  all.emplace_back("elastic-claims", [this](Stop stop) { claim_controller_.run(stop); });
  all.emplace_back("mode-drain", [this](Stop stop) { mode_drain_.run(stop); });
  all.emplace_back("settings", [this](Stop stop) {
    in_.settings.run(
        [this](const Error& why) { post_event_(control::settings_refused(api_, in_.options.namespace_name, why)); },
        stop);
  });
  return all;
}

Result<void> Control::run(const sigset_t& stop_signals) {
  const auto port = plain_.open();
  if (!port) return fail_in("--plain-listen", port.error());
  log_.info("control starts",
            {{"version", kVersion}, {"identity", identity_}, {"health", *port}, {"policy", in_.config.policy}});
  Thread events("events",
                [this](const std::stop_token& stop) { events_.run(stop); });  // joined last: all record events
  auto threads = start_threads();
  int signal = 0;
  ::sigwait(&stop_signals, &signal);
  log_.info("control stops", {{"signal", signal}});
  leaving_ = true;
  secure_.drain();
  const timespec notice = {kNotice.count(), 0};
  if (!secure_.failed()) ::sigtimedwait(&stop_signals, nullptr, &notice);  // a second signal ends the wait
  secure_.stop(kGrace);
  for (auto& thread : threads) thread.request_stop();
  threads.clear();
  events.request_stop();
  events.join();
  plain_.stop(std::chrono::seconds(1));
  if (secure_.failed())
    return fail(Code::kUnavailable, "--listen " + in_.options.listen + ": the port cannot be opened");
  return {};
}

Result<void> can_serve_with(const std::optional<std::string>& text) {
  if (!text) return fail(Code::kNotFound, "there is no such file");
  const auto config = parse_cluster_config(*text, "cluster.conf");
  return config ? Result<void>() : tl::unexpected(config.error());
}

/// Runs control once. Returns its exit code; kSettingsChanged: its settings changed.
int run_control_once(const ControlOptions& options) {
  const sigset_t stop_signals = block_stop_signals();

  Log log;
  SystemClock clock;
  ClusterConfig config;
  ConfigWatch settings(options.cluster_config, can_serve_with, clock, log);  // before they are read
  if (!options.cluster_config.empty()) {
    auto read = read_cluster_config(options.cluster_config);
    if (!read) return report(fail_in("--cluster-config", read.error()).value(), kExitUsage);
    config = *read;
  }
  const auto policy = policy_named(config.policy);
  if (!policy) return report(policy.error(), kExitUsage);
  auto apis = open_apis(options.kubeconfig, clock, log);
  if (!apis) return report(apis.error(), kExitUsage);
  Control control({.options = options,
                   .config = config,
                   .policy = **policy,
                   .settings = settings,
                   .apis = std::move(*apis),
                   .clock = clock,
                   .log = log});
  const auto done = control.run(stop_signals);
  return !done ? report(done.error()) : settings.changed() ? kSettingsChanged : kExitOk;
}

}  // namespace

int run_control(const ControlOptions& options) {
  const int code = run_control_once(options);
  return code == kSettingsChanged ? start_again() : code;
}

}  // namespace carve::cmd
