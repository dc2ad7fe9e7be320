// The CPU time of control for the whole life of a pod, in microseconds per pod and phase: the events of its watch (as
// bytes of the stream), kube-scheduler's two calls (as bytes of HTTP/2), the Binding's body, the event on the pod, and
// the agent's two writes of the card's object. The code is control's own. Sockets, TLS and the API server are excluded;
// writes are answered immediately. One thread; `--ahead` pods are chosen before the first of them is bound, as in a
// burst.
//
//   pod_life_bench [--nodes N] [--pods P] [--alive A] [--ahead W] [--check US]
//
// --check: fails when a pod costs more. Instruction counts do not depend on the machine's load:
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*phase_*' pod_life_bench ...
//   callgrind_annotate --inclusive=yes callgrind.out.* | grep phase_
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>

#include "adapter/http/streams.h"
#include "adapter/http/testing/h2_client.h"
#include "app/control/bind/binder.h"
#include "app/control/schedule/extender.h"
#include "app/control/state/policy_watcher.h"
#include "app/control/api/routes.h"
#include "app/control/schedule/unschedulable_pods.h"
#include "app/events/event_recorder.h"
#include "bench/control/objects.h"
#include "codec/kube/lines.h"
#include "codec/kube/messages.h"
#include "codec/record.h"
#include "port/testing/fake_kube_api.h"
#include "port/testing/relayed_kube_api.h"
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS static_cast<void>(0)
#endif

namespace carve::bench {
namespace {

/// Accepts every write immediately and keeps the last one.
class Server final : public carve::testing::RelayedKubeApi {
 public:
  using RelayedKubeApi::RelayedKubeApi;
  Result<std::string> create(const std::string&, const std::string& body) override {
    last = body;
    return std::string(R"({"kind":"Status","status":"Success"})");
  }
  std::string last;
};

/// control, wired as in src/cmd but without its threads.
struct Control {
  carve::testing::FakeKubeApi api;
  Server server{api};
  ManualClock clock;
  Log log{[](std::string_view) {}};
  control::ControlMetrics metrics;
  control::UnschedulablePods turned_away;
  control::ClusterModel model{{}, clock, log};
  control::Leader leader{{api, clock, log, {}, {}}, {.identity = "bench"}};
  std::shared_ptr<const PlacementRules> rules =
      std::make_shared<const PlacementRules>(control::rules_of(kPolicies[0]));
  events::EventRecorder notices{server, "", clock, log, "carve-control"};
  control::Extender extender{{}, [this] { return rules; }, [this] { return model.snapshot(); },
                             [this](const Owner& owner, const FitView& fit) {
                               metrics.observe_filter(fit);
                               if (!fit.nodes.empty()) turned_away.forget(owner.uid);
                             },
                             &clock};
  control::Binder binder{{model, leader, server, clock, log, {},
                          [this](const control::PodEntry& pod, const std::string& node) -> const PolicyRow& {
                            return control::card_policy(*rules, pod.object.ask, *model.snapshot(), node);
                          },
                          [this](codec::EventNote note) { notices.warn(std::move(note)); },
                          [this](const Owner& owner, const std::string& node) {
                            return extender.sent_for(owner, node);
                          }}};
  control::Routes routes{control::secure_routes(answers()), "carve-scheduler", metrics, clock};
  KubeSink pods = model.pods();
  KubeSink gpus = model.gpus();

  control::Answers answers() {
    control::Answers all;
    all.choose = [this](std::string_view call) { return extender.choose(call); };
    all.bind = [this](std::string_view call) { return binder.bind(call); };
    all.synced = [this] { return model.synced(); };
    return all;
  }
};

double cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

enum Phase : std::size_t { kCreated, kChoose, kBind, kTold, kBound, kAgent, kStatus, kGone, kPhases };
constexpr std::array<const char*, kPhases> kNames = {
    "event of the new pod",    "choose call", "bind call",         "the pod's own event written",
    "event of the bound pod", "events of the card's object, 2", "events of its status, 2", "events of its end, 2"};

class Bench {
 public:
  Bench(std::size_t nodes, std::size_t alive, std::size_t ahead) : nodes_(nodes), alive_(alive), ahead_(ahead) {
    std::vector<std::string> objects, cards;
    for (std::size_t node = 0; node < nodes; ++node) {
      names_.push_back(node_name(node));
      objects.push_back(node_object(node));
      for (std::size_t card = 0; card < 8; ++card) {
        auto made = gpu(node, card);
        cards.push_back(gpu_object(made));
        gpus_.emplace(made.card.id.str(), std::move(made));
      }
    }
    control_.model.nodes().replace(objects);
    control_.gpus.replace(cards);
    control_.pods.replace({});
    control_.leader.step();
    control_.leader.step();
    (void)control_.model.snapshot();
  }

  /// Creates pod number `pod`; the pods before it continue their lives.
  void step(std::size_t pod) {
    control_.clock.advance(std::chrono::milliseconds(5));
    if (pod % 200 == 0) control_.leader.step();
    phase_event<kCreated>(control_.pods, pod_lines_, event("ADDED", pod_object({.number = pod})));
    waiting_.push_back({pod, choose(choose_call(pod, names_)), {}});
    if (waiting_.size() > ahead_) {
      bind(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    if (living_.size() > alive_) {
      end(living_.front());
      living_.pop_front();
    }
  }
  void forget_times() {
    spent_ = {};
    CALLGRIND_ZERO_STATS;
  }
  double report(std::size_t pods) {
    double sum = 0;
    std::printf("%zu nodes x 8 cards, %zu pods, %zu alive, %zu chosen ahead; CPU us per pod\n", nodes_, pods, alive_,
                ahead_);
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      const double us = spent_[phase] / static_cast<double>(pods);
      std::printf("  %-32s %8.1f\n", kNames[phase], us);
      sum += us;
    }
    std::printf("  %-32s %8.1f\n", "all", sum);
    return sum;
  }

 private:
  struct Life {
    std::size_t pod = 0;
    std::string node;
    std::map<std::string, std::string> annotations;
  };

  class Timed {
   public:
    explicit Timed(double* to) : to_(to), begin_(cpu_us()) {}
    ~Timed() { *to_ += cpu_us() - begin_; }

   private:
    double* to_;
    double begin_;
  };

  /// The same steps as Watch::deliver() for one line.
  static void deliver(const KubeSink& sink, codec::Lines& lines, const std::string& bytes) {
    if (!lines.add(bytes)) std::abort();
    while (const auto line = lines.next()) {
      auto event = codec::parse_kube_event(*line);
      if (!event) std::abort();
      const bool deleted = event->kind == codec::KubeEvent::Kind::kDeleted;
      sink.change({deleted ? KubeChange::Kind::kDeleted : KubeChange::Kind::kPut, std::move(event->object)});
    }
  }

  template <Phase kPhase>
  std::string ask(const char* path, std::string body) {
    const auto stream = client_.ask("POST", path, std::move(body));
    const auto bytes = client_.output();
    std::string out;
    phase_answer<kPhase>(bytes, &out);
    if (!client_.feed(out)) std::abort();
    const auto& answered = client_.answer(stream);
    if (answered.status != "200") std::abort();
    return answered.body;
  }
  template <Phase kPhase>
  [[gnu::noinline]] void phase_answer(const std::string& bytes, std::string* out) {
    const Timed timed(&spent_[kPhase]);
    auto requests = streams_.feed(bytes, {});
    if (!requests) std::abort();
    for (auto& request : *requests) {
      request.http.peer = "carve-scheduler";
      streams_.reply(request.stream, control_.routes.answer(request.http));
    }
    for (auto piece = streams_.output(); !piece.empty(); piece = streams_.output()) *out += piece;
  }

  template <Phase kPhase>
  [[gnu::noinline]] void phase_event(const KubeSink& sink, codec::Lines& lines, const std::string& bytes) {
    const Timed timed(&spent_[kPhase]);
    deliver(sink, lines, bytes);
  }
  std::string choose(std::string call) {
    const auto said = ask<kChoose>("/scheduler/choose", std::move(call));
    const auto begin = said.find("[\"") + 2;
    if (said.find("\"Error\":\"\"") == std::string::npos || begin == 1) std::abort();
    return said.substr(begin, said.find('"', begin) - begin);
  }
  [[gnu::noinline]] void phase_told() {
    const Timed timed(&spent_[kTold]);
    control_.notices.flush();
  }

  void bind(Life life) {
    if (ask<kBind>("/scheduler/bind", bind_call(life.pod, life.node)) != R"({"Error":""})") std::abort();
    const auto body = std::move(control_.server.last);
    phase_told();
    life.annotations[std::string(codec::kRecordAnnotation)] = record_in(body);
    PodMoment now{.number = life.pod, .node = life.node, .annotations = life.annotations};
    phase_event<kBound>(control_.pods, pod_lines_, event("MODIFIED", pod_object(now)));
    hold(life, true);
    now.running = true;
    phase_event<kStatus>(control_.pods, pod_lines_, event("MODIFIED", pod_object(now)));
    now.phase = "Running";
    phase_event<kStatus>(control_.pods, pod_lines_, event("MODIFIED", pod_object(now)));
    living_.push_back(std::move(life));
  }

  void end(const Life& life) {
    PodMoment now{.number = life.pod, .node = life.node, .annotations = life.annotations, .phase = "Running",
                  .running = true, .deleting = true};
    phase_event<kGone>(control_.pods, pod_lines_, event("MODIFIED", pod_object(now)));
    phase_event<kGone>(control_.pods, pod_lines_, event("DELETED", pod_object(now)));
    hold(life, false);
  }

  /// The agent reports what its cards hold now.
  void hold(const Life& life, bool holds) {
    const auto record = codec::decode_record(life.annotations.at(std::string(codec::kRecordAnnotation)));
    if (!record) std::abort();
    for (const Slice& slice : slices_of(*record)) {
      auto& card = gpus_.at(slice.card.str());
      if (holds) {
        card.holders.push_back({slice, "ml", fmt::format("train-{}", life.pod), {}, false});
      } else {
        std::erase_if(card.holders, [&](const auto& one) { return one.slice.owner == slice.owner; });
      }
      phase_event<kAgent>(control_.gpus, gpu_lines_, event("MODIFIED", gpu_object(card)));
    }
  }

  /// The record's text in a Binding's body. Its only escapes are those of quotes.
  static std::string record_in(const std::string& body) {
    const std::string key = fmt::format("\"{}\":\"", codec::kRecordAnnotation);
    std::string text;
    const auto begin = body.find(key);
    if (begin == std::string::npos) std::abort();
    for (auto at = begin + key.size(); body[at] != '"'; ++at) text += body[at] == '\\' ? body[++at] : body[at];
    return text;
  }

  const std::size_t nodes_, alive_, ahead_;
  Control control_;
  std::vector<std::string> names_;
  std::map<std::string, codec::GpuObject> gpus_;
  http::testing::H2Client client_;
  http::Streams streams_{http::Limits{}};
  codec::Lines pod_lines_{8U << 20U};
  codec::Lines gpu_lines_{8U << 20U};
  std::deque<Life> waiting_, living_;
  std::array<double, kPhases> spent_{};
};

int run(std::size_t nodes, std::size_t pods, std::size_t alive, std::size_t ahead, double check) {
  Bench bench(nodes, alive, ahead);
  std::size_t pod = 0;
  for (; pod < alive + ahead + 50; ++pod) bench.step(pod);
  bench.forget_times();
  for (const auto end = pod + pods; pod < end; ++pod) bench.step(pod);
  const double us = bench.report(pods);
  if (check <= 0 || us <= check) return 0;
  std::printf("more than the allowed %.0f us\n", check);
  return 1;
}

}  // namespace
}  // namespace carve::bench

int main(int argc, char** argv) {
  std::size_t nodes = 1000, pods = 1000, alive = 1000, ahead = 8;
  double check = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--nodes") == 0) nodes = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--pods") == 0) pods = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--alive") == 0) alive = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--ahead") == 0) ahead = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--check") == 0) check = std::atof(argv[i + 1]);
  }
  return carve::bench::run(nodes, pods, alive, ahead, check);
}
