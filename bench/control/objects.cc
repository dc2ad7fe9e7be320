#include "bench/control/objects.h"

#include <fmt/format.h>

namespace carve::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\\\"") : std::string(1, c);
  return out + "\"";
}

constexpr const char* kManaged =
    R"(,"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z",)"
    R"("fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},)"
    R"("f:controller-uid":{},"f:job-name":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"8f0c5a1e\"}":{}}},"f:spec":{)"
    R"("f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:args":{},"f:command":{},"f:env":{".":{},)"
    R"("k:{\"name\":\"RANK\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"WORLD\"}":{".":{},"f:name":{},)"
    R"("f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},)"
    R"("f:cpu":{},"f:elasticgpu.io/gpu-core":{},"f:elasticgpu.io/gpu-memory":{},"f:memory":{}},"f:requests":{".":{},)"
    R"("f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{)"
    R"(".":{},"k:{\"mountPath\":\"/data\"}":{".":{},"f:mountPath":{},"f:name":{}}}}},"f:dnsPolicy":{},)"
    R"("f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},)"
    R"("f:terminationGracePeriodSeconds":{},"f:volumes":{".":{},"k:{\"name\":\"data\"}":{".":{},"f:name":{},)"
    R"("f:persistentVolumeClaim":{".":{},"f:claimName":{}}}}}}},{"manager":"kubelet","operation":"Update",)"
    R"("apiVersion":"v1","time":"2026-01-01T00:00:02Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{)"
    R"("f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},)"
    R"("f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:status":{},"f:type":{}}},)"
    R"("f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}},"subresource":"status"}])";

constexpr const char* kSpec =
    R"("volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data"}},{"name":"kube-api-access-x7x7x",)"
    R"("projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{)"
    R"("name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":)"
    R"("namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],)"
    R"("containers":[{"name":"main","image":"registry.example.com/team/train:2026.1","command":["python3","train.py"],)"
    R"("args":["--epochs","10"],"env":[{"name":"RANK","value":"0"},{"name":"WORLD","value":"1"}],"resources":)"
    R"({"limits":)"
    R"({"cpu":"4","elasticgpu.io/gpu-core":"10","elasticgpu.io/gpu-memory":"8192","elasticgpu.io/slot":"1","memory":)"
    R"("16Gi"},"requests":{"cpu":"4","elasticgpu.io/gpu-core":"10","elasticgpu.io/gpu-memory":"8192",)"
    R"("elasticgpu.io/slot":"1","memory":"16Gi"}},"volumeMounts":[{"name":"data","mountPath":"/data"},{"name":)"
    R"("kube-api-access-x7x7x","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],)"
    R"("terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":)"
    R"("IfNotPresent"}],"restartPolicy":"Never","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",)"
    R"("serviceAccountName":"default","serviceAccount":"default","securityContext":{},"schedulerName":)"
    R"("carve-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":)"
    R"("NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":)"
    R"("NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":)"
    R"("PreemptLowerPriority")";

std::string status_of(const PodMoment& moment) {
  std::string status = fmt::format(R"("status":{{"phase":"{}","qosClass":"Burstable")", moment.phase);
  if (!moment.node.empty()) {
    status +=
        R"(,"conditions":[{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":)"
        R"("2026-01-01T00:00:01Z"}])";
  }
  if (moment.running) {
    status +=
        R"(,"hostIP":"10.0.0.1","podIP":"10.1.0.7","startTime":"2026-01-01T00:00:01Z","containerStatuses":[{"name":)"
        R"("main","state":{"running":{"startedAt":"2026-01-01T00:00:02Z"}},"lastState":{},"ready":true,"restartCount":)"
        R"(0,"image":"registry.example.com/team/train:2026.1","started":true}])";
  }
  return status + "}";
}

}  // namespace

std::string node_name(std::size_t number) { return fmt::format("gpu-pool-a-worker-{:05}", 10'000 + number); }

std::string node_object(std::size_t number) {
  const auto name = node_name(number);
  return fmt::format(
      R"({{"kind":"Node","apiVersion":"v1","metadata":{{"name":"{}","uid":"node-{}","resourceVersion":"1","labels":{{)"
      R"("kubernetes.io/hostname":"{}","kubernetes.io/arch":"amd64","node.kubernetes.io/instance-type":"8xa100",)"
      R"("topology.kubernetes.io/zone":"a"}}}},"status":{{"allocatable":{{"elasticgpu.io/slot":"64"}},)"
      R"("conditions":[]}}}})",
      name, number, name);
}

codec::GpuObject gpu(std::size_t node, std::size_t card) {
  codec::GpuObject made;
  made.node = node_name(node);
  made.index = static_cast<int>(card);
  const auto uuid = fmt::format("{:08x}-0000-4000-8000-{:012x}", node, card);
  made.name = made.node + ".gpu-" + uuid;
  made.card.id = CardId("GPU-" + uuid);
  made.card.model = "NVIDIA A100-SXM4-80GB";
  made.card.memory = Bytes::gib(80);
  made.plugins = {"slots"};
  for (std::size_t other = 0; other < 8; ++other) {
    if (other == card) continue;
    made.links.push_back({fmt::format("GPU-{:08x}-0000-4000-8000-{:012x}", node, other), "NVLINK", 12});
  }
  return made;
}

std::string gpu_object(const codec::GpuObject& gpu) {
  const auto cut = [](const std::string& patch) {
    const auto at = patch.find("\"value\":") + 8;
    return patch.substr(at, patch.size() - at - 2);
  };
  return R"({"apiVersion":"elasticgpu.io/v1alpha1","kind":"GPU","metadata":{"name":")" + gpu.name +
         R"(","resourceVersion":"7")" + kManaged + R"(},"status":)" + cut(codec::gpu_status_patch(gpu)) + ",\"spec\":" +
         cut(codec::gpu_spec_patch(gpu)) + "}";
}

std::string pod_uid(std::size_t number) { return fmt::format("8f0c5a1e-0000-4000-8000-{:012x}", number); }

std::string pod_object(const PodMoment& moment, bool managed) {
  std::string annotations = R"("team.example.com/owner":"ml")";
  for (const auto& [key, value] : moment.annotations) annotations += "," + quoted(key) + ":" + quoted(value);
  return fmt::format(
      R"({{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"train-{0}","generateName":"train-","namespace":"ml",)"
      R"("uid":"{1}","resourceVersion":"{2}","creationTimestamp":"2026-01-01T00:00:00Z"{3},"labels":{{"app":"train",)"
      R"("controller-uid":"8f0c5a1e","job-name":"train"}},"annotations":{{{4}}},"ownerReferences":[{{"apiVersion":)"
      R"("batch/v1","kind":"Job","name":"train","uid":"8f0c5a1e","controller":true,"blockOwnerDeletion":true}}]{5}}},)"
      R"("spec":{{{6}{7}}},{8}}})",
      moment.number, pod_uid(moment.number), 1000 + moment.number,
      moment.deleting ? R"(,"deletionTimestamp":"2026-01-01T00:10:00Z","deletionGracePeriodSeconds":30)" : "",
      annotations, managed ? kManaged : "", moment.node.empty() ? "" : fmt::format(R"("nodeName":"{}",)", moment.node),
      kSpec, status_of(moment));
}

std::string event(const char* type, const std::string& object) {
  return fmt::format(R"({{"type":"{}","object":{}}})", type, object) + "\n";
}

std::string choose_call(std::size_t pod, const std::vector<std::string>& names) {
  std::string text = R"({"Pod":)" + pod_object({.number = pod}, false) + R"(,"Nodes":null,"NodeNames":[)";
  for (const auto& name : names) text += (&name == &names.front() ? "\"" : ",\"") + name + "\"";
  return text + "]}";
}

std::string bind_call(std::size_t pod, const std::string& node) {
  return fmt::format(R"({{"PodName":"train-{}","PodNamespace":"ml","PodUID":"{}","Node":"{}"}})", pod, pod_uid(pod),
                     node);
}

}  // namespace carve::bench
