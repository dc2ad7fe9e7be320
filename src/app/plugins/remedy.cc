#include "app/plugins/remedy.h"

namespace carve::plugins {

std::string_view remedy(Code code, Plugin plugin) {
  const bool claim = plugin == Plugin::kClaim;
  switch (code) {
    case Code::kResourceExhausted:
      return claim
                 ? "the pod waits here until there is room (the kubelet retries); to start it on another card, delete "
                   "the pod: its claim is allocated again, and a full card takes no new claim (taint "
                   "gpu.elasticgpu.io/full); `carve inspect --cluster` shows which pods hold it"
                 : "another owner holds it: run `carve inspect` on the node to see which; the kubelet retries";
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return "the kubelet retries; run `carve doctor` on the node to see what does not answer";
    case Code::kInvalidArgument:
    case Code::kUnimplemented:
      return claim ? "change the claim or its DeviceClass, then re-create the pod"
                   : "change the pod's request, then re-create the pod";
    case Code::kNotFound:
      return claim ? "the kubelet retries; if it still fails, re-create the claim and its pod"
                   : "the kubelet retries; if it still fails, check that `carve control` runs and re-create the pod";
    case Code::kFailedPrecondition:
      return claim ? "the kubelet retries; the Node's conditions say what the node lacks"
                   : "re-create the pod; the Node's conditions say what the node lacks";
    case Code::kAborted:
    case Code::kAlreadyExists:
      return "re-create the pod";
    default:
      return "the kubelet retries; the agent's log on the node says more";
  }
}

}  // namespace carve::plugins
