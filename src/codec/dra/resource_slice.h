#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// A semantic version attribute ("580.65.6"), told apart from a plain string.
struct AttributeVersion {
  std::string text;
  friend bool operator==(const AttributeVersion&, const AttributeVersion&) = default;
};
using DeviceAttribute = std::variant<std::string, std::int64_t, bool, AttributeVersion>;

/// A consumable capacity: what is there, what a claim takes that says nothing, the smallest amount and the
/// grain. Canonical quantities ("80Gi", "100"), so that what is read back compares equal.
struct DeviceCapacity {
  std::string value;
  std::string standard;  // requestPolicy.default
  std::string min;
  std::string step;
  friend bool operator==(const DeviceCapacity&, const DeviceCapacity&) = default;
};

struct DeviceTaint {
  std::string key;
  std::string value;
  std::string effect;
  std::string added;  // timeAdded: the server's; not compared, but kept
  friend bool operator==(const DeviceTaint& a, const DeviceTaint& b) {
    return a.key == b.key && a.value == b.value && a.effect == b.effect;
  }
};

/// A device that many claims may hold at once.
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

/// The whole object. `node_uid` makes the Node its owner, so that it goes with the node; empty: none.
[[nodiscard]] std::string encode_slice(const PublishedSlice& slice, std::string_view node_uid);

/// Reads what the server has, ours or changed by others. Tolerant.
///   errors  kInvalidArgument: no JSON, no name
[[nodiscard]] Result<PublishedSlice> parse_slice(std::string_view text);

}  // namespace carve::codec
