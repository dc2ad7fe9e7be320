#include <algorithm>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "adapter/http/peer_client.h"
#include "adapter/http/server.h"
#include "adapter/kube/kube_client.h"
#include "adapter/tls/certificates.h"
#include "app/control/admission/admission.h"
#include "app/control/bind/bind_route.h"
#include "app/control/bind/binder.h"
#include "app/control/bind/leader_route.h"
#include "app/control/leader/takeover_resync.h"
#include "app/control/state/cluster_model.h"
#include "app/control/leader/epochs.h"
#include "app/control/schedule/extender.h"
#include "app/control/leader/leader.h"
#include "app/control/state/policy_watcher.h"
#include "app/control/api/metrics.h"
#include "app/control/schedule/node_nominator.h"
#include "app/control/bind/static_pod_binder.h"
#include "app/control/preempt/preempt_verb.h"
#include "app/control/preempt/preemptor.h"
#include "app/control/api/read_api.h"
#include "app/control/api/routes.h"
#include "app/control/api/settings_refused.h"
#include "app/control/preempt/preemption_candidates.h"
#include "app/control/schedule/unschedulable_pods.h"
#include "app/control/state/unhealthy_cards.h"
#include "app/control/schedule/requeuer.h"
#include "app/doors/event_recorder.h"
#include "base/thread_name.h"
#include "cmd/cluster_config.h"
#include "cmd/config_watch.h"
#include "cmd/options.h"
#include "cmd/process_metrics.h"
#include "cmd/secure_port.h"
#include "cmd/stop_signals.h"
#include "codec/extender/extender.h"
#include "codec/record.h"
#include "codec/views/gpushare_inspect.h"

// carve control: wires the parts of control and runs them until SIGTERM.
namespace carve::cmd {
namespace {

using codec::MetricsText;

// After SIGTERM: the time for the Service's clients to learn that this replica ends. The replica reports "not ready",
// answers every request and closes its connection. It is as long as kube-proxy may need to route new connections
// elsewhere.
constexpr std::chrono::seconds kNotice{5};
constexpr std::chrono::seconds kPeerCall{2};   // the leader's answer; a leader that hangs is soon replaced
constexpr unsigned kBindsPerSecond = 1000;  // binds must not be slower than the scheduler that sends them
constexpr std::chrono::seconds kLeaseCall{2};  // a read of the Lease, or its renewal
constexpr std::chrono::seconds kGrace{6};  // for the requests that have arrived; the pod has 15 s

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

/// One replica of control.
class Control {
 public:
  struct Apis {
    std::unique_ptr<KubeApi> watches;  // lists, watches, certificates
    std::unique_ptr<KubeApi> lease;    // separate: a renewal never queues behind another call
    std::unique_ptr<KubeApi> bind;     // kube-scheduler waits for its answers
  };
  Control(const ControlOptions& options, const ClusterConfig& config, const PolicyRow& policy, ConfigWatch& settings,
          Apis apis, Clock& clock, Log& log);
  ///   errors  kUnavailable, kInvalidArgument: a port cannot be opened
  Result<void> run(const sigset_t& stop_signals);

 private:
  control::Answers answers();
  std::string why_not_ready() const;
  std::string metrics_text();
  void write_ports(MetricsText* text) const;
  void filtered(const Owner& owner, const FitView& fit);
  std::string turned_away_elsewhere(std::string_view call);
  void notify_leader(const codec::UnschedulablePodsNote& note);
  std::string with_chosen_cards(std::string_view call) const;
  Result<std::string> ask_peer(const std::string& address, std::string_view path, std::string_view call);
  [[nodiscard]] std::function<const PolicyRow&(const control::PodEntry&, const std::string&)> card_policy() const;

  const ControlOptions options_;
  const std::string identity_;
  const ClusterConfig config_;
  ConfigWatch& settings_;
  Clock& clock_;
  Log& log_;
  Apis apis_;
  control::ControlMetrics metrics_;
  control::ClusterModel model_;
  control::UnschedulablePods unschedulable_;
  control::PolicyWatcher placement_;
  control::UnhealthyCards unhealthy_;
  control::Extender extender_;
  control::Admission admission_;
  tls::Certificates certificates_;
  control::TakeoverResync catch_up_;
  control::Leader leader_;
  doors::EventRecorder notices_;
  control::Binder binder_;
  http::PeerClient peers_;
  control::BindRoute bind_route_;
  control::LeaderRoute leader_route_;
  control::StaticPodBinder static_pod_binder_;
  control::NodeNominator node_nominator_;
  control::Requeuer requeuer_;
  control::Preemptor preemptor_;
  control::PreemptVerb preempt_verb_;
  control::Routes secure_routes_;
  control::Routes plain_routes_;
  SecurePort secure_;
  std::atomic<bool> leaving_ = false;
  std::atomic<const http::Server*> counted_ = nullptr;  // plain_: metrics may be requested before run() sets it
  std::unique_ptr<http::Server> plain_;
};

tls::CertificateNames names_of(const ControlOptions& options) {
  tls::CertificateNames names;
  names.space = options.space;
  return names;
}

Control::Control(const ControlOptions& options, const ClusterConfig& config, const PolicyRow& policy,
                 ConfigWatch& settings, Apis apis, Clock& clock, Log& log)
    : options_(options),
      identity_(identity_of(options)),
      config_(config),
      settings_(settings),
      clock_(clock),
      log_(log),
      apis_(std::move(apis)),
      model_(config.dialects(), clock, log),
      placement_(policy, log, [this](codec::EventNote note) { notices_.warn(std::move(note)); }),
      unhealthy_(model_, log, [this](codec::EventNote note) { notices_.warn(std::move(note)); }),
      extender_(config.dialects(), [this] { return placement_.rules(); }, [this] { return model_.snapshot(); },
                [this](const Owner& owner, const FitView& fit) { filtered(owner, fit); }, &clock),
      admission_(config.dialects(), {config.scheduler, config.visible},
                 [this](control::AdmissionFaults faults) { metrics_.observe_refusal(faults); }),
      certificates_(*apis_.watches, clock, log, names_of(options)),
      catch_up_(*apis_.watches, model_, clock),
      leader_({*apis_.lease, clock, log, [this] { return control::epochs_so_far(model_, clock_); },
               [this](std::uint64_t term) { return catch_up_(term); }},
              {options.space, "carve-control", identity_}),
      notices_(*apis_.watches, "", clock, log, "carve-control"),
      binder_({model_, leader_, *apis_.bind, clock, log, config.dialects(),
               card_policy(),
               [this](codec::EventNote note) { notices_.warn(std::move(note)); },
               [this](const Owner& owner, const std::string& node) { return extender_.sent_for(owner, node); },
               [this](const Owner& owner, const std::string& node) { return extender_.why_sent(owner, node); }}),
      bind_route_({[this] { return leader_.epoch() != 0; }, [this] { return leader_.holder(); },
                   [this](std::string_view call) { return binder_.bind(call); },
                   [this](const std::string& address, std::string_view call) {
                     return ask_peer(address, control::kBindHere, with_chosen_cards(call));
                   }}),
      leader_route_({[this] { return leader_.epoch() != 0; }, [this] { return leader_.holder(); },
                     [this](const std::string& address, std::string_view path, std::string_view call) {
                       return ask_peer(address, path, call);
                     }, clock}),
      static_pod_binder_({model_, leader_, *apis_.bind, clock, log, config.dialects(),
               card_policy(),
               [this](codec::EventNote note) { notices_.warn(std::move(note)); }}),
      node_nominator_({model_, leader_, *apis_.bind, clock, log, unschedulable_,
                   [this](const control::PodEntry& pod, const std::set<std::string>& but) {
                     return extender_.choose_anywhere(pod, but);
                   }}),
      requeuer_(model_, leader_, *apis_.bind, clock, log, [this](bool gained) { return node_nominator_.step(gained); }),
      preemptor_({model_, leader_, *apis_.bind, clock, log, unschedulable_,
                  card_policy(),
                  [this](codec::EventNote note) { notices_.warn(std::move(note)); },
                  [this](const codec::UnschedulablePodsNote& note) { notify_leader(note); }, &node_nominator_}),
      preempt_verb_({model_, config.dialects(), [this] { return placement_.rules(); },
                     [this] { return control::read_budgets(*apis_.bind); },
                     [this](const Owner& owner) { unschedulable_.forget(owner.uid); }, log}),
      secure_routes_(control::secure_routes(answers()), tls::CertificateNames{}.client, metrics_, clock),
      plain_routes_(control::plain_routes(answers(), options.gpushare_http || config.gpushare_http), {}, metrics_,
                    clock),
      secure_({options.listen, {}, {}, {}}, secure_routes_, log) {
  // The events with a pod's cards wait until no Binding waits, because in a burst they delayed the Bindings.
  notices_.yield_to([this] { return binder_.busy(); });
}

/// After a filter call. kube-scheduler sends nodes that passed all its own filters. The nodes that may have room later
/// are remembered.
void Control::filtered(const Owner& owner, const FitView& fit) {
  metrics_.observe_filter(fit);
  if (!fit.nodes.empty()) return unschedulable_.forget(owner.uid);
  std::vector<std::string> names;
  for (const auto& node : fit.refused) {
    if (!node.final) names.emplace_back(node.node);
  }
  unschedulable_.put(owner.uid, std::move(names), clock_.now(), fit.refused.size());
}

std::string Control::turned_away_elsewhere(std::string_view call) {
  auto note = codec::parse_turned_away(call);
  if (!note) return codec::binding_result(note.error().what);
  unschedulable_.put(note->uid, std::move(note->nodes), clock_.now());
  return codec::binding_result("");
}

void Control::notify_leader(const codec::UnschedulablePodsNote& note) {
  const auto address = control::address_in(leader_.holder());
  if (address.empty()) return;
  const auto told = ask_peer(address, control::kUnschedulablePods, codec::encode_turned_away(note));
  if (!told) log_.warn("the leader cannot be notified of an unschedulable pod", {{"error", told.error().what}});
}

/// A bind call for the leader. If this replica chose the node, because the leader did not answer then, the call carries
/// the cards that this replica chose: only this replica knows which cards it chose for the other pods of a burst.
std::string Control::with_chosen_cards(std::string_view call) const {
  const auto args = codec::parse_binding_args(call);
  if (!args) return std::string(call);
  const auto slices = extender_.sent_for({OwnerKind::kPod, args->uid}, args->node);
  const auto record = slices.empty() ? Result<Record>(fail(Code::kNotFound, "none")) : record_of(1, slices);
  const auto text = record ? codec::encode_record(*record) : Result<std::string>(tl::unexpected(record.error()));
  return text ? codec::with_wish(call, *text, extender_.why_sent({OwnerKind::kPod, args->uid}, args->node))
              : std::string(call);
}

Result<std::string> Control::ask_peer(const std::string& address, std::string_view path, std::string_view call) {
  const auto client = certificates_.client();
  if (client.pair.empty()) return fail(Code::kUnavailable, "this replica has no client certificate yet");
  const tls::CertificateNames names = names_of(options_);
  return peers_.post({client.pair.certificate, client.pair.key, client.authorities,
                      names.service + "." + names.space + ".svc"},
                     address, std::string(path), std::string(call), kPeerCall);
}

std::function<const PolicyRow&(const control::PodEntry&, const std::string&)> Control::card_policy() const {
  return [this](const control::PodEntry& pod, const std::string& node) -> const PolicyRow& {
    return control::card_policy(*placement_.rules(), pod.object.ask, *model_.snapshot(), node);
  };
}

control::Answers Control::answers() {
  control::Answers answers;
  answers.filter = [this](std::string_view call) { return extender_.filter_to_place(call); };
  answers.filter_readonly = [this](std::string_view call) { return extender_.filter(call); };
  answers.prioritize = [this](std::string_view call) { return extender_.prioritize(call); };
  answers.choose = [this](std::string_view call) { return extender_.choose(call); };
  answers.bind = [this](std::string_view call) { return bind_route_.bind(call); };
  answers.preempt = [this](std::string_view call) { return preempt_verb_.answer(call); };
  answers.unschedulable = [this](std::string_view call) { return turned_away_elsewhere(call); };
  answers.at_leader = [this](std::string_view path, std::string_view call, const control::Answers::Text& own) {
    return leader_route_.answer(path, call, own);
  };
  answers.forwards = [this] { return leader_route_.forwards(); };
  answers.bind_here = [this](std::string_view call) { return binder_.bind(call); };
  answers.mutate = [this](std::string_view review) { return admission_.mutate(review); };
  answers.validate = [this](std::string_view review) { return admission_.validate(review); };
  answers.cluster = [this] { return codec::to_json(control::view_with_whys(model_, *placement_.rules())); };
  answers.metrics = [this] { return metrics_text(); };
  answers.gpushare_inspect = [this](std::string_view node) {
    return codec::gpushare_inspect(control::view_of(model_), config_.gpushare_unit, node);
  };
  answers.synced = [this] { return model_.synced(); };
  answers.not_ready = [this] { return why_not_ready(); };
  return answers;
}

std::string Control::why_not_ready() const {
  if (leaving_) return "this replica is shutting down";
  if (!model_.synced()) return "the first lists of nodes, GPU objects and pods have not arrived";
  if (!placement_.answered()) return "the placement rules have not arrived";
  if (!unhealthy_.answered()) return "the lists of unhealthy cards have not arrived";
  if (!secure_.open()) return "there is no certificate yet";
  return {};
}

void Control::write_ports(MetricsText* text) const {
  const auto* plain = counted_.load();
  const std::pair<const char*, http::ServerCounts> ports[] = {
      {"https", secure_.counts()}, {"http", plain != nullptr ? plain->counts() : http::ServerCounts{}}};
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
  control::write_cards(*model_.snapshot(), &text);
  control::write_settings(settings_.good(), &text);
  control::write_placement(placement_.stats(), &text);
  control::write_bindings(binder_.stats(), &text);
  control::write_preemptions(preemptor_.stats(), &text);
  control::write_node_nominator(node_nominator_.stats(), &text);
  text.family("carve_control_notices_dropped_total", MetricsText::Kind::kCounter,
              "Events that were dropped because more than 1,024 writes waited.");
  text.sample(notices_.dropped());
  write_ports(&text);
  write_process(&text);
  return text.text();
}

Result<void> Control::run(const sigset_t& stop_signals) {
  http::ServerOptions plain;
  plain.listen = options_.plain_listen;
  plain.waits = [this](const HttpRequest& ask) { return plain_routes_.waits(ask); };
  auto opened = http::Server::open(
      plain, [this](const HttpRequest& ask) { return plain_routes_.answer(ask); }, log_);
  if (!opened) return fail_in("--plain-listen", opened.error());
  plain_ = std::move(*opened);
  counted_ = plain_.get();
  log_.info("control starts",
            {{"version", kVersion}, {"identity", identity_}, {"health", plain_->port()}, {"policy", config_.policy}});
  auto& api = *apis_.watches;
  const auto nodes = model_.nodes();
  const auto gpus = model_.gpus();
  const auto pods = model_.pods();
  const auto rules = placement_.sink();
  const auto unhealthy = unhealthy_.sink();
  const std::string rules_in = "/api/v1/namespaces/" + options_.space + "/configmaps";
  using Stop = const std::stop_token&;
  std::jthread telling([&](Stop stop) { notices_.run(stop); });  // stopped last: the other threads record events
  std::vector<std::jthread> threads;
  const auto start = [&threads](const char* name, auto work) {
    const NamesThreads named(name);
    threads.emplace_back(std::move(work));
  };
  start("watch-nodes", [&](Stop stop) { api.watch("/api/v1/nodes", {}, nodes, stop); });
  start("watch-gpus", [&](Stop stop) { api.watch("/apis/elasticgpu.io/v1alpha1/gpus", {}, gpus, stop); });
  start("watch-pods", [&](Stop stop) { api.watch("/api/v1/pods", {}, pods, stop); });
  start("watch-rules", [&](Stop stop) { api.watch(rules_in, control::PolicyWatcher::query(), rules, stop); });
  start("watch-unhealthy", [&](Stop stop) { api.watch(control::UnhealthyCards::kPath, {}, unhealthy, stop); });
  start("certificates", [&](Stop stop) {
    certificates_.run([this](const tls::Serving& serving) { secure_.serve_with(serving); }, stop);
  });
  start("catch-up", [&](Stop stop) { catch_up_.run(stop); });
  start("leader", [&](Stop stop) { leader_.run(stop); });
  start("binder", [&](Stop stop) { binder_.run(clock_, stop); });
  start("placer", [&](Stop stop) { static_pod_binder_.run(stop); });
  start("waker", [&](Stop stop) { requeuer_.run(stop); });
  start("preemptor", [&](Stop stop) { preemptor_.run(stop); });
  start("settings", [&](Stop stop) {
    settings_.run([&](const Error& why) { notices_.warn(control::settings_refused(api, options_.space, why)); }, stop);
  });
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
  telling.request_stop();
  telling.join();
  plain_->stop(std::chrono::seconds(1));
  if (secure_.failed()) return fail(Code::kUnavailable, "--listen " + options_.listen + ": the port cannot be opened");
  return {};
}

Result<void> can_serve_with(const std::optional<std::string>& text) {
  if (!text) return fail(Code::kNotFound, "there is no such file");
  const auto config = parse_cluster_config(*text, "cluster.conf");
  return config ? Result<void>() : tl::unexpected(config.error());
}

}  // namespace

int run_control(const ControlOptions& options) {
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
  Control::Apis apis;
  kube::Limits usual;
  kube::Limits lease;
  lease.call = kLeaseCall;
  kube::Limits bind;
  bind.call = control::Binder::kWrite;
  bind.per_second = bind.saved_up = kBindsPerSecond;
  bind.idle = http::Limits{}.waiting_threads;  // each of which may be writing a Binding
  const std::pair<std::unique_ptr<KubeApi>*, kube::Limits> wanted[] = {
      {&apis.watches, usual}, {&apis.lease, lease}, {&apis.bind, bind}};
  for (const auto& [place, limits] : wanted) {
    auto api = kube::open(options.kubeconfig, clock, log, limits);
    if (!api) return report(api.error(), kExitUsage);
    *place = std::move(*api);
  }
  Control control(options, config, **policy, settings, std::move(apis), clock, log);
  const auto done = control.run(stop_signals);
  return done ? kExitOk : report(done.error());
}

}  // namespace carve::cmd
