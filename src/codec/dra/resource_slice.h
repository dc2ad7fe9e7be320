#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// A semantic version attribute ("580.65.6"), as distinct from a plain string.
struct AttributeVersion {
  std::string text;
  friend bool operator==(const AttributeVersion&, const AttributeVersion&) = default;
};
using DeviceAttribute = std::variant<std::string, std::int64_t, bool, AttributeVersion>;

/// A consumable capacity. Canonical quantities ("80Gi", "100"), so that values that are read back compare equal.
///   source  KEP-5075; the API server requires default = min + n × step, min + step <= value, max <= value
struct DeviceCapacity {
  std::string value;     // the total
  std::string standard;  // requestPolicy.default: the amount for a claim that requests none
  std::string min;       // the smallest amount
  std::string step;      // empty: any amount from `min`
  std::string max;       // of one claim's request for one device; empty: `value`
  friend bool operator==(const DeviceCapacity&, const DeviceCapacity&) = default;
};

struct DeviceTaint {
  std::string key;
  std::string value;
  std::string effect;
  std::string added;  // timeAdded: set by the server; not compared, but kept
  friend bool operator==(const DeviceTaint& a, const DeviceTaint& b) {
    return a.key == b.key && a.value == b.value && a.effect == b.effect;
  }
};

/// A device that many claims may share.
struct PublishedDevice {
  std::string name;
  std::map<std::string, DeviceAttribute> attributes;
  std::map<std::string, DeviceCapacity> capacity;
  std::vector<DeviceTaint> taints;
  friend bool operator==(const PublishedDevice&, const PublishedDevice&) = default;
};

/// A ResourceSlice (resource.k8s.io/v1) of one node.
struct PublishedSlice {
  std::string name;
  std::string version;  // metadata.resourceVersion; empty: not read from the server
  std::string driver;
  std::string node;
  std::string pool;
  std::int64_t generation = 0;
  std::int64_t count = 0;  // slices of this generation
  std::vector<PublishedDevice> devices;
};

/// The whole object. `node_uid` makes the Node its owner, so that it is deleted with the Node; empty: no owner.
[[nodiscard]] std::string encode_slice(const PublishedSlice& slice, std::string_view node_uid);

/// Reads a slice from the server, Carve's own or one that another client changed. Tolerant.
///   errors  kInvalidArgument: not JSON, no name
[[nodiscard]] Result<PublishedSlice> parse_slice(std::string_view text);

}  // namespace carve::codec
