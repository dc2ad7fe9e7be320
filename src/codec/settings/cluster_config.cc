#include "codec/settings/cluster_config.h"

#include <fmt/format.h>

#include <optional>

#include "codec/quantity.h"
#include "codec/settings/setting_lines.h"
#include "core/policy/policy.h"

namespace carve::codec {
namespace {

constexpr std::string_view kPlugins = "plugins";
constexpr std::string_view kOldPlugins = "doors";  // its earlier name; a file has one of the two

Error not_legal(const std::string& value, const std::string& legal) {
  return {Code::kInvalidArgument, "\"" + value.substr(0, 64) + "\"; legal are " + legal};
}

Result<std::uint32_t> number(const std::string& value, std::uint64_t low, std::uint64_t high, std::string_view unit) {
  CARVE_TRY(const auto read, parse_count("value", value, low, high, unit));
  return static_cast<std::uint32_t>(read);
}

/// The settings of the dialects other than whether nvidia.com/gpu is served. nullopt: the key is not one of them.
std::optional<Result<void>> apply_dialect(const std::string& key, const std::string& value, ClusterConfig* config) {
  const auto keep = [](std::uint32_t* to, const Result<std::uint32_t>& read) {
    if (!read) return Result<void>(tl::unexpected(read.error()));
    *to = *read;
    return Result<void>();
  };
  if (key == "dialects.cgpu-policy" || key == "dialects.qgpu-policy") {
    const auto policy = share_policy_from(value);
    if (!policy) return tl::unexpected(not_legal(value, std::string(kSharePolicyWords)));
    (key == "dialects.cgpu-policy" ? config->cgpu_policy : config->qgpu_policy) = *policy;
    return Result<void>();
  }
  if (key == "dialects.volcano-factor") return keep(&config->volcano_factor, number(value, 1, 1024, "MiB per unit"));
  if (key == "dialects.deepomatic-containers") {
    return keep(&config->deepomatic_containers, number(value, 0, 100, "containers per card (0: the dialect is off)"));
  }
  if (key == "dialects.rancher-containers") {
    return keep(&config->rancher_containers, number(value, 0, 100, "containers per card (0: whole cards)"));
  }
  return std::nullopt;
}

Result<void> apply(const std::string& key, const std::string& value, ClusterConfig* config) {
  if (auto applied = apply_dialect(key, value, config)) return *applied;
  if (key == kPlugins || key == kOldPlugins) {
    if (value != "dra" && value != "slots" && value != "dra,slots" && value != "dra,slots,shared")
      return tl::unexpected(not_legal(value, "dra, slots, dra,slots and dra,slots,shared"));
    config->plugins = value;
  } else if (key == "dialects.nvidia") {
    if (value != "slots" && value != "dra" && value != "off")
      return tl::unexpected(not_legal(value, "slots, dra and off"));
    config->nvidia = value == "slots" ? NvidiaPlugin::kDevicePlugin
                     : value == "dra" ? NvidiaPlugin::kDra
                                      : NvidiaPlugin::kOff;
  } else if (key == "dialects.hami") {
    if (value != "on" && value != "off") return tl::unexpected(not_legal(value, "off and on"));
    config->hami = value == "on";
  } else if (key == "dialects.gpushare-unit") {
    if (value != "GiB" && value != "MiB") return tl::unexpected(not_legal(value, "GiB and MiB"));
    config->gpushare_unit = value == "GiB" ? Bytes::gib(1) : Bytes::mib(1);
  } else if (key == "dialects.gpushare-http") {
    if (value != "on" && value != "off") return tl::unexpected(not_legal(value, "off and on"));
    config->gpushare_http = value == "on";
  } else if (key == "placement.policy") {
    CARVE_TRY(const auto* row, policy_named(value));
    config->policy = row->name;
  } else if (key == "scheduler.name") {
    config->scheduler = value;
  } else if (key == "admission.visible-devices") {
    if (value != "void" && value != "refuse") return tl::unexpected(not_legal(value, "void and refuse"));
    config->visible = value == "void" ? VisibleDevices::kVoid : VisibleDevices::kRefuse;
  } else {
    return fail(Code::kInvalidArgument,
                "unknown key; legal are plugins, dialects.nvidia, dialects.hami, dialects.gpushare-unit, "
                "dialects.gpushare-http, dialects.cgpu-policy, dialects.qgpu-policy, dialects.volcano-factor, "
                "dialects.deepomatic-containers, dialects.rancher-containers, placement.policy, scheduler.name and "
                "admission.visible-devices");
  }
  return {};
}

/// Refuses settings that are legal one by one but leave nvidia.com/gpu without an interface that serves it: its pods
/// would never start.
Result<void> check_together(const ClusterConfig& config) {
  if (config.nvidia == NvidiaPlugin::kDra && config.plugins == "slots")
    return fail(Code::kInvalidArgument,
                "dialects.nvidia = dra with plugins = slots: no agent serves claims; set plugins = dra or dra,slots, "
                "or dialects.nvidia = slots or off");
  if (config.nvidia == NvidiaPlugin::kDevicePlugin && config.plugins == "dra")
    return fail(Code::kInvalidArgument,
                "dialects.nvidia = slots with plugins = dra: no agent serves slots; set plugins = slots or dra,slots, "
                "or dialects.nvidia = dra or off");
  if (config.hami && config.nvidia != NvidiaPlugin::kDevicePlugin)
    return fail(Code::kInvalidArgument,
                "dialects.hami = on without dialects.nvidia = slots: HAMi's pods request nvidia.com/gpu too; set "
                "dialects.nvidia = slots, or dialects.hami = off");
  return {};
}

/// Applies every legal line. The errors name the others.
Result<void> apply_lines(const std::string& text, const std::string& source, ClusterConfig* config) {
  bool nvidia_said = false;
  std::string plugins_said;
  auto applied = each_setting(text, source, [&](const std::string& key, const std::string& value) {
    nvidia_said = nvidia_said || key == "dialects.nvidia";
    const bool plugins = key == kPlugins || key == kOldPlugins;
    if (plugins && !plugins_said.empty() && plugins_said != key)
      return Result<void>(
          fail(Code::kInvalidArgument, "is the same setting as " + plugins_said + "; remove one of the two"));
    if (plugins) plugins_said = key;
    auto line = apply(key, value, config);
    if (!line && (plugins || key == "dialects.nvidia")) config->nvidia = NvidiaPlugin::kOff;
    return line;
  });
  if (!nvidia_said && config->plugins == "dra") config->nvidia = NvidiaPlugin::kDra;
  return applied;
}

}  // namespace

std::vector<std::string> ClusterConfig::totals() const {
  std::vector<std::string> names;
  for (const auto& one : names_on_nodes(dialects())) names.emplace_back(one.name);
  return names;
}

Result<ClusterConfig> parse_cluster_config(const std::string& text, const std::string& source) {
  ClusterConfig config;
  CARVE_TRY_VOID(apply_lines(text, source, &config));
  if (auto fits = check_together(config); !fits)
    return fail(Code::kInvalidArgument, fmt::format("configuration:\n  {}: {}", source, fits.error().what));
  return config;
}

ClusterConfig legal_lines(const std::string& text) {
  ClusterConfig config;
  static_cast<void>(apply_lines(text, "", &config));
  if (check_together(config)) return config;
  config.nvidia = NvidiaPlugin::kOff;
  config.hami = false;
  return config;
}

}  // namespace carve::codec
