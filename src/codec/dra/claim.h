#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// One allocated device of a claim.
struct ClaimResult {
  std::string request;  // "a", or "a/b" for a sub-request
  std::string driver;
  std::string pool;
  std::string device;
  std::string share;                            // the ID of the share, when several claims share the device; else empty
  std::map<std::string, std::string> consumed;  // capacity name as published → quantity
};

/// One opaque configuration that is part of the allocation.
struct ClaimConfig {
  bool from_class = false;
  std::vector<std::string> requests;  // empty: all
  std::string driver;
  std::string parameters;  // JSON text
};

/// One request of a claim's spec; of several alternatives (firstAvailable), each is one request with its own name.
struct ClaimAsk {
  std::string request;  // "a", or "a/b" for an alternative
  std::string device_class;
  std::int64_t count = 1;                       // of devices; 0: all that match (allocationMode All)
  std::map<std::string, std::string> capacity;  // name → quantity per device; empty: the devices' defaults
};

struct ClaimUser {
  std::string resource;  // "pods"
  std::string name;
  std::string uid;
};

/// The parts of a ResourceClaim (resource.k8s.io/v1) that a node's driver needs.
struct Claim {
  std::string namespace_name;
  std::string name;
  std::string uid;
  bool allocated = false;
  std::vector<ClaimResult> results;
  std::vector<ClaimConfig> configs;  // of the class before the claim's, in the API server's order: the later one wins
  std::vector<ClaimUser> users;      // reservedFor
  std::vector<ClaimAsk> asks;
  std::vector<std::string> classes;  // named by its requests
  std::vector<std::string> ready;    // "pool/device/share" of the devices that its status already reports as Ready
  std::map<std::string, std::string> refused;  // the same for devices that are not Ready → the condition's message
};

/// Tolerant: members that are not needed may have any value.
///   errors  kInvalidArgument: not a JSON object, or without name or UID
[[nodiscard]] Result<Claim> parse_claim(std::string_view text);

/// One entry of status.devices of a claim.
struct DeviceStatus {
  std::string driver;
  std::string pool;
  std::string device;
  std::string share;
  bool ready = true;
  std::string reason;  // CamelCase
  std::string message;
  std::string data;  // a JSON object's text, or empty
};

/// The server-side apply body for the claim's status subresource, with Carve's devices only. It contains the UID, so
/// that a claim of the same name is not changed (the server answers with a conflict).
[[nodiscard]] std::string claim_status_body(const Claim& claim,
                                            const std::vector<DeviceStatus>& devices,
                                            std::string_view now_rfc3339);

}  // namespace carve::codec
