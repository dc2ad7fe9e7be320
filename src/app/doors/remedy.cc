#include "app/doors/remedy.h"

namespace carve::doors {

std::string_view remedy(Code code, Door door) {
  const bool claim = door == Door::kClaim;
  switch (code) {
    case Code::kResourceExhausted:
      return "another owner holds it: `carve inspect` on the node says who; the kubelet tries again";
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return "the kubelet tries again; `carve doctor` on the node says what is away";
    case Code::kInvalidArgument:
    case Code::kUnimplemented:
      return claim ? "change the claim or its DeviceClass, then make the pod anew"
                   : "change what the pod asks for, then make it anew";
    case Code::kNotFound:
      return claim ? "the kubelet tries again; where it stays so, make the claim and its pod anew"
                   : "the kubelet tries again; where it stays so, see that `carve control` runs and make the pod anew";
    case Code::kFailedPrecondition:
      return claim ? "the kubelet tries again; the conditions of the Node say what it lacks"
                   : "make the pod anew; the conditions of the Node say what it lacks";
    case Code::kAborted:
    case Code::kAlreadyExists:
      return "make the pod anew";
    default:
      return "the kubelet tries again; the agent's log on the node says more";
  }
}

}  // namespace carve::doors
