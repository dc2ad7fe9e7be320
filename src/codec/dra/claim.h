#pragma once

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
  std::string share;                            // of a device that several claims share; else empty
  std::map<std::string, std::string> consumed;  // capacity name as published → quantity
};

/// One opaque configuration that came with the allocation.
struct ClaimConfig {
  bool from_class = false;
  std::vector<std::string> requests;  // empty: all
  std::string driver;
  std::string parameters;  // JSON text
};

struct ClaimUser {
  std::string resource;  // "pods"
  std::string name;
  std::string uid;
};

/// A ResourceClaim (resource.k8s.io/v1), what a node's driver needs of it.
struct Claim {
  std::string space;
  std::string name;
  std::string uid;
  bool allocated = false;
  std::vector<ClaimResult> results;
  std::vector<ClaimConfig>
      configs;  // class before claim, as the API server lists them: the later one wins
  std::vector<ClaimUser> users;      // reservedFor
  std::vector<std::string> classes;  // that its requests name
  std::vector<std::string> ready;    // "pool/device/share" that its status calls Ready already
};

/// Reads it tolerantly: members that are not needed may be anything.
///   errors  kInvalidArgument: no JSON object, or without name or UID
[[nodiscard]] Result<Claim> parse_claim(std::string_view text);

/// One line of status.devices of a claim.
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

/// The server-side apply body for the claim's status subresource: our devices only. Its UID is in
/// it, so that a namesake is not written to (the server answers with a conflict).
[[nodiscard]] std::string claim_status_body(const Claim& claim,
                                            const std::vector<DeviceStatus>& devices,
                                            std::string_view now_rfc3339);

}  // namespace carve::codec
