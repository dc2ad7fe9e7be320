#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "app/plugins/device_plugin.h"
#include "app/plugins/testing/fake_node_slices.h"
#include "app/plugins/testing/pod_object.h"
#include "app/plugins/testing/remembering_kubelet.h"
#include "app/plugins/testing/small_kube.h"

namespace carve::plugins {

/// The device plugin of a node with one card. Pods are those of pod_here().
class SlotNode : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<Slice> slices_of_pod(const std::string& uid) const {
    Slice one;
    one.owner = {OwnerKind::kPod, uid};
    one.part = "main";
    one.card = slices.cards().cards.front().id;
    one.memory = Bytes::gib(1);
    one.compute = CoreShare(5);
    return {one};
  }
  /// The API server reports a pod that is bound here. `annotations`: a JSON object.
  void hear(const std::string& uid, const std::string& phase, const std::string& annotations = "{}") {
    pods.change({KubeChange::Kind::kPut, pod_here(uid, phase, annotations)});
  }
  /// The kubelet admits the pod.
  void allocate(const std::string& uid, const std::string& slot, const std::string& container = "main") {
    const auto device = plugin.allocate({slot});
    ASSERT_TRUE(device) << device.error().what;
    kubelet.entries.push_back({uid, container, {slot}, {*device}});
  }

  ManualClock clock;
  Log log{[](std::string_view) {}};
  SmallKube kube;
  FakeNodeSlices slices{some_cards(1)};
  RememberingKubelet kubelet;
  NodePods pods{"n1", kube};
  events::EventRecorder notices{kube, "n1", clock, log};
  /// Runs the plugin's jobs. Here each runs inside the step that posts it.
  std::function<bool(std::function<void()>)> run_job = [](const std::function<void()>& job) {
    job();
    return true;
  };
  DevicePlugin plugin{{slices, kubelet, pods, notices, clock, log, {}, {}, {}, [this](std::function<void()> job) {
                         return run_job(std::move(job));
                       }}};
};

}  // namespace carve::plugins
