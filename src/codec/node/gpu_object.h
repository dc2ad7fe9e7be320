#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/model/slice.h"

namespace carve::codec {

struct GpuLink {
  std::string uuid;
  std::string level;  // "NVLINK"
  int lanes = 0;
};

/// One slice of the card, with the names of its owner.
struct GpuHolder {
  Slice slice;
  std::string space;  // of the owner; empty: not known, or local
  std::string name;
  std::vector<std::string> pods;  // who uses it: "namespace/name"
  bool ending = false;
};

/// What one pod (or a claim that no pod here names) holds of the card.
struct GpuAllocation {
  struct Container {
    std::string name;
    Bytes memory;
    CoreShare compute;
  };
  std::string space;
  std::string pod;
  std::vector<Container> containers;
};

/// A GPU object (elasticgpu.io/v1alpha1), whole.
struct GpuObject {
  std::string name;
  std::string node;
  int index = 0;
  Card card;
  std::string pci_bus_id;
  std::string driver_version;
  std::string cuda_version;
  std::vector<GpuLink> links;
  std::vector<std::string> doors;  // through which it is given out: "dra", "slots"; empty: not said
  std::vector<GpuHolder> holders;
  std::map<std::string, GpuAllocation> allocated;  // by UID
};

/// What stands in the two halves, as numbers that tell whether they are the same.
struct GpuDigest {
  std::string name;
  std::size_t spec = 0;
  std::size_t status = 0;
};

/// The object without its status, for create; `node_uid` owns it.
[[nodiscard]] std::string encode_gpu(const GpuObject& gpu, std::string_view node_uid);
/// JSON patches that put a whole half right, whatever stood there.
[[nodiscard]] std::string gpu_spec_patch(const GpuObject& gpu);
[[nodiscard]] std::string gpu_status_patch(const GpuObject& gpu);
[[nodiscard]] GpuDigest digest_of(const GpuObject& gpu);
/// The same of what the server has.
///   errors  kInvalidArgument: no JSON, or without a name
[[nodiscard]] Result<GpuDigest> parse_gpu_digest(std::string_view text);

/// The object as encode_gpu() and the patches made it, without `allocated`. Tolerant: a holder that cannot be read
/// whole is left out, and `*odd` counts it.
///   errors  kInvalidArgument: no JSON, or without name, node, UUID or memory
[[nodiscard]] Result<GpuObject> parse_gpu_object(std::string_view text, std::size_t* odd);

}  // namespace carve::codec
