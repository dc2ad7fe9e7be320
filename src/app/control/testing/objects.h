#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "codec/node/gpu_object.h"
#include "codec/record.h"
#include "core/model/record.h"

// Builders for the API server's objects, for the tests of control.
namespace carve::control::testing {

inline std::string node_object(const std::string& name, const std::string& labels = "") {
  return fmt::format(R"({{"metadata":{{"name":"{}","labels":{{{}}}}}}})", name, labels);
}

inline codec::GpuObject gpu(const std::string& node, const std::string& uuid, std::uint64_t gib = 16) {
  codec::GpuObject made;
  made.name = node + "." + uuid;
  made.node = node;
  made.card.id = CardId(uuid);
  made.card.model = "NVIDIA T4";
  made.card.memory = Bytes::gib(gib);
  return made;
}

/// The GPU object as the server stores it after its agent's writes.
inline std::string gpu_object(const codec::GpuObject& gpu) {
  const auto cut = [](const std::string& patch) {
    const auto at = patch.find("\"value\":") + 8;
    return patch.substr(at, patch.size() - at - 2);
  };
  return R"({"metadata":{"name":")" + gpu.name + R"("},"status":)" + cut(codec::gpu_status_patch(gpu)) +
         ",\"spec\":" + cut(codec::gpu_spec_patch(gpu)) + "}";
}

inline Slice slice(const std::string& uid, const std::string& uuid, std::uint64_t gib,
                   OwnerKind kind = OwnerKind::kPod) {
  Slice made;
  made.owner = {kind, uid};
  made.part = "c";
  made.card = CardId(uuid);
  made.memory = Bytes::gib(gib);
  made.compute = CoreShare(0);
  made.share = ShareClass::kBestEffort;
  made.dialect = "gpushare";
  return made;
}

inline codec::GpuHolder holder(const Slice& held) { return {held, "s", "p", {}, false}; }

struct PodText {
  std::string uid;
  std::string node = {};
  std::string record = {};
  std::string phase = "Pending";
  std::string gib = "4";
  std::string more = {};  // further members of metadata, each preceded by a comma
  int priority = 0;
  bool slots = true;  // as admission adds them
};

inline std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '"' ? std::string("\\\"") : std::string(1, c);
  return "\"" + out + "\"";
}

inline std::string pod_object(const PodText& pod) {
  const auto annotations =
      pod.record.empty() ? std::string()
                         : fmt::format("{}:{}", quoted(std::string(codec::kRecordAnnotation)), quoted(pod.record));
  const auto node = pod.node.empty() ? std::string() : fmt::format(R"("nodeName":"{}",)", pod.node);
  return fmt::format(
      R"({{"metadata":{{"name":"{}","namespace":"s","uid":"{}","annotations":{{{}}}{}}},"spec":{{{}"priority":{},)"
      R"("containers":[{{"name":"c","resources":{{"limits":{{"aliyun.com/gpu-mem":"{}"{}}}}}}}]}},)"
      R"("status":{{"phase":"{}"}}}})",
      pod.uid, pod.uid, annotations, pod.more, node, pod.priority, pod.gib,
      pod.slots ? R"(,"elasticgpu.io/slot":"1")" : "", pod.phase);
}

inline std::string record_text(const std::vector<Slice>& slices, std::uint64_t epoch = 1) {
  return *codec::encode_record(*record_of(epoch, slices));
}

}  // namespace carve::control::testing
