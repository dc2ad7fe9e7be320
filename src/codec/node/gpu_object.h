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
  int lanes = 0;      // for NVLink: the number of active links
};

/// One slice of the card, with the names of its owner.
struct GpuHolder {
  Slice slice;
  std::string namespace_name;  // of the owner; empty: unknown, or local
  std::string name;
  std::vector<std::string> pods;  // the pods that use it: "namespace/name"
  bool ending = false;
};

/// What one pod (or a claim without a known pod) holds of the card.
struct GpuAllocation {
  struct Container {
    std::string name;
    Bytes memory;
    CoreShare compute;
  };
  std::string namespace_name;
  std::string pod;
  std::vector<Container> containers;
};

/// A complete GPU object (elasticgpu.io/v1alpha1).
struct GpuObject {
  std::string name;
  std::string node;
  int index = 0;
  Card card;
  std::string pci_bus_id;
  std::string driver_version;
  std::string cuda_version;
  std::vector<GpuLink> links;
  std::vector<std::string> plugins;  // the kubelet plugins that serve the card: "dra", "slots"; empty: not reported
  std::vector<GpuHolder> holders;
  std::map<std::string, GpuAllocation> allocated;  // by UID
};

/// Hashes of the spec and of the status, for comparison.
struct GpuDigest {
  std::string name;
  std::size_t spec = 0;
  std::size_t status = 0;
};

/// The object without its status, for a create request. The Node with `node_uid` becomes its owner.
[[nodiscard]] std::string encode_gpu(const GpuObject& gpu, std::string_view node_uid);
/// JSON patches that replace the complete spec or status, regardless of the previous contents.
[[nodiscard]] std::string gpu_spec_patch(const GpuObject& gpu);
[[nodiscard]] std::string gpu_status_patch(const GpuObject& gpu);
[[nodiscard]] GpuDigest digest_of(const GpuObject& gpu);
/// digest_of() for the text of an object from the server.
///   errors  kInvalidArgument: not JSON, or without a name
[[nodiscard]] Result<GpuDigest> parse_gpu_digest(std::string_view text);

/// The object as encode_gpu() and the patches wrote it, without `allocated`. Tolerant: a holder that cannot be read
/// completely is left out and counted in `*unreadable`.
///   errors  kInvalidArgument: not JSON, or without name, node, UUID or memory
[[nodiscard]] Result<GpuObject> parse_gpu_object(std::string_view text, std::size_t* unreadable);

}  // namespace carve::codec
