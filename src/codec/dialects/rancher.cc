#include <string>
#include <vector>

#include "codec/dialects/dialect.h"
#include "codec/node/card_modes.h"

// rancher.io/gpu-mem: GiB of one card, as the quotas of Rancher's GPU management count it. Its device plugin and
// extender are gpushare's under another name.
//   source  Rancher's documentation (spec: systems.md R4)
namespace carve::codec {

bool selects_shared_nodes(const PodAsk& pod) {
  const auto found = pod.node_selector.find(std::string(kRancherType));
  return found != pod.node_selector.end() && found->second == kRancherShared;
}

Result<Request> read_rancher(const Words& words, const PodAsk&, const DialectSettings&) {
  std::vector<Error> errors;
  const auto gib = words.count("rancher.io/gpu-mem", 4096, "GiB", &errors);
  CARVE_TRY_VOID(joined(errors));
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(*gib));
  request.compute = CoreShare();
  request.share = ShareClass::kBestEffort;
  return request;
}

}  // namespace carve::codec
