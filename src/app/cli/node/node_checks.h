#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/cli/doctor.h"
#include "port/host_files.h"

namespace carve::cli {

/// What the checks look at, and what they found.
class NodeLook {
 public:
  NodeLook(const HostFiles& files, const std::optional<AgentView>& view,
           std::vector<Finding>* findings)
      : files_(files), view_(view), findings_(findings) {}

  [[nodiscard]] const std::optional<AgentView>& view() const { return view_; }
  void found(Finding finding) { findings_->push_back(std::move(finding)); }
  /// nullopt: it is not there. What could not be looked at is a finding of its own.
  std::optional<std::string> read(const std::string& path);
  /// Empty: it is not there.
  std::vector<std::string> list(const std::string& folder);
  /// What it is; nullopt: it could not be looked at, so nothing follows.
  std::optional<FileKind> kind(const std::string& path);
  std::optional<FileFacts> facts(const std::string& path);
  /// It was looked at, and is not there.
  bool is_absent(const std::string& path) { return kind(path) == FileKind::kAbsent; }

 private:
  void not_looked_at(const std::string& path, const Error& error);
  const HostFiles& files_;
  const std::optional<AgentView>& view_;
  std::vector<Finding>* findings_;
};

// One function per subject.
void check_driver(NodeLook& look);
void check_device_nodes(NodeLook& look);
void check_engines(NodeLook& look);
void check_kubelet(NodeLook& look);
void check_container_devices(NodeLook& look);

/// All of them. Worst first is the caller's affair.
[[nodiscard]] std::vector<Finding> check_node(const HostFiles& files,
                                              const std::optional<AgentView>& view);

}  // namespace carve::cli
