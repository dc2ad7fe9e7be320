#include <fmt/format.h>

#include <array>

#include "app/cli/node/node_checks.h"
#include "codec/kubelet/checkpoint.h"

// The kubelet: whether it starts, whether Carve is registered with it, and whether another plugin offers cards to it.
namespace carve::cli {
namespace {

constexpr char kPlugins[] = "/var/lib/kubelet/device-plugins";
constexpr char kSlot[] = "elasticgpu.io/slot";

void check_flags(NodeLook& look) {
  std::vector<std::string> files = {"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet",
                                    "/etc/sysconfig/kubelet", "/var/lib/kubelet/config.yaml"};
  for (const char* folder :
       {"/etc/systemd/system/kubelet.service.d", "/usr/lib/systemd/system/kubelet.service.d"}) {
    for (const auto& name : look.list(folder)) files.push_back(std::string(folder) + "/" + name);
  }
  for (const auto& file : files) {
    const auto text = look.read(file);
    if (!text || text->find("Accelerators") == std::string::npos) continue;
    look.found({Severity::kError, "the kubelet's configuration names a feature gate that no longer exists",
                file + " names Accelerators: a current kubelet refuses to start",
                "remove Accelerators=true; device plugins and DRA need no feature gate", "kubelet-gate-accelerators"});
  }
}

/// True for the resource names under which other device plugins offer cards.
bool offers_cards(const std::string& resource) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "nvidia.com/",    "aliyun.com/gpu", "tencent.com/vcuda", "tke.cloud.tencent.com/qgpu",
      "volcano.sh/gpu", "rancher.io/gpu", "deepomatic.com/",   "elasticgpu.com/"};
  for (const auto name : kNames) {
    if (resource.rfind(name, 0) == 0) return true;
  }
  return false;
}

void check_registrations(NodeLook& look) {
  const auto text = look.read(std::string(kPlugins) + "/kubelet_internal_checkpoint");
  if (!text) return;
  const auto registered = codec::parse_registered(*text);
  if (!registered) {
    look.found({Severity::kWarning, "the kubelet's list of device plugins was not checked", registered.error().what,
                "run the doctor again: the kubelet may be writing the list", "not-looked-at"});
    return;
  }
  std::string others;
  for (const auto& [resource, devices] : *registered) {
    if (devices > 0 && offers_cards(resource)) others += (others.empty() ? "" : ", ") + resource;
  }
  const bool ours = look.kind(std::string(kPlugins) + "/carve-slots.sock") == FileKind::kSocket;
  if (!others.empty()) {
    look.found({Severity::kError, "another device plugin allocates the same cards",
                "the kubelet also has " + others + ": neither plugin knows what the other has allocated",
                "remove that plugin from the node (its DaemonSet, or a nodeSelector), or remove Carve from the node",
                "conflicting-plugin"});
  }
  const auto slots = registered->find(kSlot);
  if (ours && look.view() && (slots == registered->end() || slots->second == 0)) {
    look.found({Severity::kError, "the agent runs, but the kubelet has no slots",
                slots == registered->end() ? "elasticgpu.io/slot is not registered"
                                           : "elasticgpu.io/slot is registered with an empty list",
                "see the errors of the kubelet plugins in the agent's log; the list is empty without a card, without a "
                "driver, and with a container runtime without CDI",
                "kubelet-no-slots"});
  }
}

/// The DRA driver: the registration socket by which the kubelet finds it.
void check_dra(NodeLook& look) {
  if (!look.view()) return;
  // The folder remains after the agent has ended. Only a socket in it shows that an agent serves it.
  bool served = false;
  for (const auto& name : look.list("/var/lib/kubelet/plugins/gpu.elasticgpu.io"))
    served = served || name.find(".sock") != std::string::npos;
  if (!served) return;
  bool found = false;
  for (const auto& name : look.list("/var/lib/kubelet/plugins_registry"))
    found = found || name.rfind("gpu.elasticgpu.io", 0) == 0;
  if (found) return;
  look.found({Severity::kError, "the agent runs, but the kubelet cannot find its DRA driver",
              "no socket gpu.elasticgpu.io* in /var/lib/kubelet/plugins_registry: pods fail with \"DRA driver "
              "gpu.elasticgpu.io is not registered\"",
              "restart the agent's pod, and check that it mounts the host's plugins_registry", "kubelet-no-dra"});
}

}  // namespace

void check_kubelet(NodeLook& look) {
  check_flags(look);
  check_registrations(look);
  check_dra(look);
}

}  // namespace carve::cli
