#include <vector>

#include "codec/dialects/dialect.h"

// rancher.io/gpu-mem: GiB of one card, as the quotas of Rancher's GPU management count it. Its device plugin and
// extender are gpushare's under another name.
//   source  Rancher's documentation (spec: systems.md R4)
namespace carve::codec {

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
