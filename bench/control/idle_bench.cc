// The CPU time of an idle control: all pods run, no pod waits, and no object changes. In a process of its own, with the
// threads of control that react to the cluster: leader, requeuer with the node nominator, preemptor, static pod binder.
// The API server is a fake in the same process; nothing is watched.
//
//   idle_bench [--nodes N] [--pods P] [--waiting W] [--seconds S] [--check MS]
//
// Prints CPU milliseconds per second of wall clock. --waiting: this number of the pods waits for a card that no node
// has. --check: fails above that figure.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "app/control/bind/static_pod_binder.h"
#include "app/control/preempt/preemptor.h"
#include "app/control/schedule/extender.h"
#include "app/control/schedule/requeuer.h"
#include "base/thread.h"
#include "bench/control/objects.h"
#include "codec/record.h"
#include "port/testing/fake_kube_api.h"

namespace carve::bench {
namespace {

double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// The parts of control that have a thread of their own and react to the cluster.
struct Control {
  carve::testing::FakeKubeApi api;
  SystemClock clock;
  Log log{[](std::string_view) {}};
  control::UnschedulablePods unschedulable;
  control::ClusterModel model{{}, clock, log};
  control::Leader leader{{api, clock, log, {}, {}}, {.identity = "bench"}};
  std::shared_ptr<const PlacementRules> rules = std::make_shared<const PlacementRules>();
  control::Extender extender{{}, [this] { return rules; }, [this] { return model.snapshot(); }, {}, &clock};
  control::NodeNominator nominator{{model, leader, api, clock, log, unschedulable,
                                    [this](const control::PodEntry& pod, const std::set<std::string>& excluded) {
                                      return extender.choose_anywhere(pod, excluded);
                                    }}};
  control::Requeuer requeuer{{model, leader, unschedulable, api, clock, log, &nominator}};
  control::Preemptor preemptor{
      {model,
       leader,
       api,
       clock,
       log,
       unschedulable,
       [](const control::PodEntry&, const std::string&) -> const PolicyRow& { return kPolicies[0]; },
       {},
       {},
       &nominator}};
  control::StaticPodBinder binder{
      {model,
       leader,
       api,
       clock,
       log,
       {},
       [](const control::PodEntry&, const std::string&) -> const PolicyRow& { return kPolicies[0]; },
       {}}};
};

/// The pod holds 2 GiB of one card of its node.
std::string running_pod(std::size_t number, std::size_t nodes) {
  const auto card = gpu(number % nodes, number / nodes % 8);
  Slice slice;
  slice.owner = {OwnerKind::kPod, pod_uid(number)};
  slice.part = "main";
  slice.card = card.card.id;
  slice.memory = Bytes::gib(2);
  slice.share = ShareClass::kBestEffort;
  slice.dialect = "gpushare";
  const auto record = record_of(1, {slice});
  return pod_object({.number = number,
                     .node = node_name(number % nodes),
                     .annotations = {{std::string(codec::kRecordAnnotation), *codec::encode_record(*record)}},
                     .phase = "Running",
                     .running = true});
}

int run(std::size_t nodes, std::size_t pods, std::size_t waiting, int seconds, double check) {
  Control control;
  std::vector<std::string> node_objects, cards, pod_objects;
  for (std::size_t node = 0; node < nodes; ++node) {
    node_objects.push_back(node_object(node));
    for (std::size_t card = 0; card < 8; ++card) cards.push_back(gpu_object(gpu(node, card)));
  }
  for (std::size_t pod = 0; pod < pods; ++pod)
    pod_objects.push_back(pod < pods - waiting ? running_pod(pod, nodes) : pod_object({.number = pod}));
  control.model.nodes().replace(node_objects);
  control.model.gpus().replace(cards);
  control.model.pods().replace(pod_objects);
  control.leader.step();
  control.leader.step();
  const auto stats = control.model.stats();
  fmt::print("{} nodes with {} cards, {} pods hold slices, {} wait\n", stats.nodes, stats.cards, stats.holding,
             stats.waiting);
  if (stats.nodes != nodes || stats.holding != pods - waiting)
    return std::fputs("the model is not complete\n", stderr), 1;
  Thread leader("leader", [&](const std::stop_token& stop) { control.leader.run(stop); });
  Thread requeuer("requeuer", [&](const std::stop_token& stop) { control.requeuer.run(stop); });
  Thread preemptor("preemptor", [&](const std::stop_token& stop) { control.preemptor.run(stop); });
  Thread binder("static-pods", [&](const std::stop_token& stop) { control.binder.run(stop); });
  control.clock.sleep_for(std::chrono::seconds(1), {});
  const auto before = cpu_ms();
  control.clock.sleep_for(std::chrono::seconds(seconds), {});
  const double used = (cpu_ms() - before) / seconds;
  fmt::print("CPU: {:.3f} ms per second over {} s\n", used, seconds);
  return check > 0 && used > check ? 1 : 0;
}

}  // namespace
}  // namespace carve::bench

int main(int argc, char** argv) {
  std::size_t nodes = 1000, pods = 5000, waiting = 0;
  int seconds = 20;
  double check = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--nodes") == 0) nodes = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--pods") == 0) pods = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--waiting") == 0) waiting = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--check") == 0) check = std::atof(argv[i + 1]);
  }
  return carve::bench::run(nodes, pods, waiting, seconds, check);
}
