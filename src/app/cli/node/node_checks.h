#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/cli/doctor.h"
#include "port/host_files.h"

namespace carve::cli {

/// The files that the checks read, and their findings.
class NodeLook {
 public:
  NodeLook(const HostFiles& files, const std::optional<AgentView>& view,
           std::vector<Finding>* findings)
      : files_(files), view_(view), findings_(findings) {}

  [[nodiscard]] const std::optional<AgentView>& view() const { return view_; }
  void found(Finding finding) { findings_->push_back(std::move(finding)); }
  /// nullopt: the file does not exist, or cannot be read. A file that cannot be read is a finding of its own.
  std::optional<std::string> read(const std::string& path);
  /// Empty: the folder does not exist, or cannot be read (which is a finding).
  std::vector<std::string> list(const std::string& folder);
  /// The kind of file; nullopt: it cannot be read (which is a finding), so the caller must conclude nothing.
  std::optional<FileKind> kind(const std::string& path);
  std::optional<FileFacts> facts(const std::string& path);
  /// True when the path was checked and does not exist.
  bool is_absent(const std::string& path) { return kind(path) == FileKind::kAbsent; }

 private:
  void not_looked_at(const std::string& path, const Error& error);
  const HostFiles& files_;
  const std::optional<AgentView>& view_;
  std::vector<Finding>* findings_;
};

// One function per subject. Each adds its findings to `look`.
void check_driver(NodeLook& look);
void check_device_nodes(NodeLook& look);
void check_engines(NodeLook& look);
void check_kubelet(NodeLook& look);
void check_container_devices(NodeLook& look);

/// Runs all checks. The caller sorts the findings.
[[nodiscard]] std::vector<Finding> check_node(const HostFiles& files,
                                              const std::optional<AgentView>& view);

}  // namespace carve::cli
