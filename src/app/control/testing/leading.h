#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/control/leader/leader.h"
#include "app/control/state/cluster_model.h"
#include "app/control/testing/objects.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/kube/event.h"
#include "core/policy/policy.h"
#include "port/testing/fake_kube_api.h"

// A fake cluster with one leading replica, for the tests of Binder, StaticPodBinder and Preemptor.
namespace carve::control::testing {

inline constexpr auto kGpus = "/apis/elasticgpu.io/v1alpha1/gpus";

inline std::string pod_path(const std::string& uid) { return control::pod_path("s", uid); }

inline const PolicyRow& binpack(const PodEntry&, const std::string&) { return kPolicies[0]; }

/// Feeds the model with the server's current lists, as new watches would.
inline void sync(ClusterModel& model, KubeApi& api) {
  model.nodes().replace(*api.list("/api/v1/nodes", {}));
  model.gpus().replace(*api.list(kGpus, {}));
  model.pods().replace(*api.list("/api/v1/pods", {}));
}

/// A server with these cards on their nodes, and one replica of control, which leads. Its model is empty.
struct Leading {
  explicit Leading(const std::vector<codec::GpuObject>& cards) {
    for (const auto& card : cards) {
      api.put("/api/v1/nodes/" + card.node, node_object(card.node));
      put(card);
    }
    lead();
  }
  void lead() {
    leader.step();
    leader.step();
  }
  void put(const codec::GpuObject& card) { api.put(std::string(kGpus) + "/" + card.name, gpu_object(card)); }
  void put(const PodText& pod) { api.put(pod_path(pod.uid), pod_object(pod)); }
  /// The pod as the server stores it.
  codec::ClusterPod pod(const std::string& uid) { return *codec::parse_cluster_pod(*api.object(pod_path(uid))); }
  /// Delivers the stored pod to the model, as its watch would.
  void deliver(const std::string& uid) { model.pods().change({KubeChange::Kind::kPut, *api.object(pod_path(uid))}); }
  void add(const PodText& pod) {
    put(pod);
    deliver(pod.uid);
  }
  void record_event(codec::EventNote one) {
    const MutexLock lock(events_mutex);
    events.push_back(std::move(one));
  }

  carve::testing::FakeKubeApi api;
  ManualClock clock;
  Log log{[](std::string_view) {}};
  ClusterModel model{{}, clock, log};
  Leader leader{{api, clock, log, {}, {}}, {.identity = "me"}};
  Mutex events_mutex;
  std::vector<codec::EventNote> events;
};

}  // namespace carve::control::testing
