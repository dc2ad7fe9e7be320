#include <gtest/gtest.h>

#include <map>
#include <set>

#include "app/cli/node/node_checks.h"

namespace carve::cli {
namespace {

constexpr char kPlugin[] = "/var/lib/kubelet/plugins/gpu.elasticgpu.io";
constexpr char kRegistry[] = "/var/lib/kubelet/plugins_registry";

/// The folders of a host: path → the sockets in it.
class Tree final : public HostFiles {
 public:
  void add(const std::string& folder) { folders_[folder]; }
  void add(const std::string& folder, const std::string& socket) { folders_[folder].insert(socket); }

  Result<std::string> read(const std::string& path) const override { return fail(Code::kNotFound, path); }
  Result<std::vector<std::string>> list(const std::string& folder) const override {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return fail(Code::kNotFound, folder);
    return std::vector<std::string>(found->second.begin(), found->second.end());
  }
  Result<FileFacts> facts(const std::string& path) const override {
    if (folders_.count(path) != 0) return FileFacts{FileKind::kFolder};
    const auto dash = path.rfind('/');
    const auto found = folders_.find(path.substr(0, dash));
    const bool there = found != folders_.end() && found->second.count(path.substr(dash + 1)) != 0;
    return FileFacts{there ? FileKind::kSocket : FileKind::kAbsent};
  }

 private:
  std::map<std::string, std::set<std::string>> folders_;
};

std::vector<std::string> found(const Tree& tree, bool agent_answers = true) {
  const std::optional<AgentView> view = agent_answers ? std::optional<AgentView>(AgentView()) : std::nullopt;
  std::vector<Finding> findings;
  NodeLook look(tree, view, &findings);
  check_kubelet(look);
  std::vector<std::string> ids;
  for (const auto& finding : findings) ids.push_back(finding.id);
  return ids;
}

TEST(KubeletChecks, AServedDraDriverNeedsARegistrationSocket) {
  Tree tree;
  tree.add(kRegistry);
  tree.add(kPlugin, "dra-agent.sock");
  EXPECT_EQ(found(tree), std::vector<std::string>{"kubelet-no-dra"});
  EXPECT_TRUE(found(tree, false).empty()) << "an agent that does not run serves no DRA driver";
  tree.add(kRegistry, "gpu.elasticgpu.io-agent-reg.sock");
  EXPECT_TRUE(found(tree).empty());
}

TEST(KubeletChecks, ANodeThatServesSlotsNeedsNoRegistrationSocket) {
  Tree tree;
  tree.add(kRegistry);
  EXPECT_TRUE(found(tree).empty());
  tree.add(kPlugin);  // it remains: the kubelet owns it, and it is a hostPath of the agent's pod
  EXPECT_TRUE(found(tree).empty());
}

}  // namespace
}  // namespace carve::cli
