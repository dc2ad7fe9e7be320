#pragma once

#include <string>

#include "codec/record.h"

namespace carve::plugins {

/// A Pod on node n1 as the API server has it: namespace "s", the UID as its name, one container "main". `annotations`:
/// a JSON object.
[[nodiscard]] inline std::string pod_here(const std::string& uid, const std::string& phase,
                                          const std::string& annotations = "{}") {
  return R"({"metadata":{"namespace":"s","name":")" + uid + R"(","uid":")" + uid + R"(","annotations":)" + annotations +
         R"(},"spec":{"nodeName":"n1","containers":[{"name":"main"}]},"status":{"phase":")" + phase + "\"}}";
}

/// The annotations of a pod with this record.
[[nodiscard]] inline std::string record_annotation(const std::string& record) {
  std::string quoted;
  for (const char c : record) quoted += c == '"' ? std::string("\\\"") : std::string(1, c);
  return "{\"" + std::string(codec::kRecordAnnotation) + "\":\"" + quoted + "\"}";
}

}  // namespace carve::plugins
