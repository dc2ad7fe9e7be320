#include "cmd/config.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "adapter/process/text_file.h"
#include "codec/settings/setting_lines.h"
#include "codec/quantity.h"

// The configuration file: lines of `key = value`. # begins a comment. The keys are the flags' names. `allow`, `deny`
// and `driver-mount` may be repeated.
namespace carve::cmd {
namespace {

Result<std::uint32_t> user_id(const std::string& name) {
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 10) {
    return static_cast<std::uint32_t>(std::stoul(name));
  }
  if (const passwd* entry = ::getpwnam(name.c_str())) return entry->pw_uid;
  return fail(Code::kInvalidArgument, "no user \"" + name + "\" on this machine");
}

Result<std::uint32_t> group_id(const std::string& name) {
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 10) {
    return static_cast<std::uint32_t>(std::stoul(name));
  }
  if (const group* entry = ::getgrnam(name.c_str())) return entry->gr_gid;
  return fail(Code::kInvalidArgument, "no group \"" + name + "\" on this machine");
}

Result<void> apply_ceiling(const std::string& word, agent::AccessRule* rule) {
  const auto equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? std::string() : word.substr(equals + 1);
  if (key == "no-online" && equals == std::string::npos) {
    rule->online = false;
  } else if (key == "max-memory") {
    CARVE_TRY(rule->max_memory, codec::parse_bytes(key, value));
  } else if (key == "max-cores") {
    CARVE_TRY(const auto number, codec::parse_count(key, value, 1, 100, "hundredths of a card"));
    rule->max_compute = static_cast<std::uint32_t>(number);
  } else if (key == "max-cards") {
    CARVE_TRY(const auto number, codec::parse_count(key, value, 1, kMaxCardsPerRequest, "cards"));
    rule->max_cards = static_cast<std::uint32_t>(number);
  } else if (key == "max-slices") {
    CARVE_TRY(const auto number, codec::parse_count(key, value, 1, 100000, "slices"));
    rule->max_slices = static_cast<std::uint32_t>(number);
  } else {
    return fail(Code::kInvalidArgument,
                "\"" + word +
                    "\" is not a limit; legal are max-memory=4Gi, max-cores=30, max-cards=2, "
                    "max-slices=3 and no-online");
  }
  return {};
}

/// "user:alice max-memory=8Gi", "group:carve", "everyone max-slices=1".
Result<agent::AccessRule> access_rule(const std::string& text, bool allow) {
  agent::AccessRule rule;
  rule.allow = allow;
  rule.text = text;
  std::istringstream words(text);
  std::string who;
  words >> who;
  if (who.rfind("user:", 0) == 0) {
    CARVE_TRY(rule.uid, user_id(who.substr(5)));
  } else if (who.rfind("group:", 0) == 0) {
    CARVE_TRY(rule.gid, group_id(who.substr(6)));
  } else if (who != "everyone") {
    return fail(Code::kInvalidArgument,
                "\"" + who + "\" names no user or group; legal are user:NAME, group:NAME and everyone");
  }
  for (std::string word; words >> word;) CARVE_TRY_VOID(apply_ceiling(word, &rule));
  return rule;
}

Result<agent::BreachAction> breach_action(const std::string& key, const std::string& value) {
  if (value == "kill") return agent::BreachAction::kKill;
  if (value == "throttle" && key == "on-compute-breach") return agent::BreachAction::kThrottle;
  if (value == "escalate" && key == "on-compute-breach") return agent::BreachAction::kEscalate;
  if (value == "report") return agent::BreachAction::kReport;
  return fail(Code::kInvalidArgument, "\"" + value + "\" is not an action; legal are kill, " +
                                          (key == "on-compute-breach" ? "throttle, escalate, " : "") + "report");
}

/// "/usr/bin/one, /usr/bin/two".
Result<std::vector<std::string>> program_paths(const std::string& text) {
  std::vector<std::string> paths;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream words(part);
    std::string path;
    std::string more;
    words >> path;
    if (path.empty() || path[0] != '/' || words >> more)
      return fail(Code::kInvalidArgument, "\"" + part + "\" is not the absolute path of a program");
    paths.push_back(path);
  }
  return paths;
}

Result<bool> on_or_off(const std::string& value) {
  if (value == "on" || value == "off") return value == "on";
  return fail(Code::kInvalidArgument, "\"" + value + "\"; legal are on and off");
}

Result<void> apply_line(const std::string& key, const std::string& value, bool flag_wins, HostOptions* o) {
  const std::map<std::string, std::string*> folders = {
      {"runtime-dir", &o->runtime_dir}, {"state-dir", &o->state_dir},     {"lib-dir", &o->lib_dir},
      {"lib-source", &o->lib_source},   {"driver-root", &o->driver_root}, {"cdi-dir", &o->cdi_dir},
      {"cgroup-root", &o->cgroup_root}, {"host-root", &o->host_root}};
  if (const auto found = folders.find(key); found != folders.end()) {
    if (value.empty() || value[0] != '/') {
      return fail(Code::kInvalidArgument, "\"" + value + "\" is not an absolute path");
    }
    if (!flag_wins) *found->second = value;
  } else if (key == "health-policy") {
    if (value.empty() || value[0] != '/')
      return fail(Code::kInvalidArgument, "\"" + value + "\" is not an absolute path");
    if (!flag_wins) o->health_policy = value;
  } else if (key == "driver-mount") {
    if (value.empty() || value[0] != '/')
      return fail(Code::kInvalidArgument, "\"" + value + "\" is not an absolute path");
    o->driver_mounts.push_back(value);
  } else if (key == "driver-libraries") {
    CARVE_TRY(o->driver_uses, cdi::parse_uses(value));
  } else if (key == "allow" || key == "deny") {
    CARVE_TRY(auto rule, access_rule(value, key == "allow"));
    o->access.push_back(std::move(rule));
  } else if (key == "slices-for-root") {
    CARVE_TRY(const auto number, codec::parse_count(key, value, 0, kMaxSlicesPerCard, "slices of each card"));
    o->slices_for_root = static_cast<std::uint32_t>(number);
  } else if (key == "own-devices") {
    CARVE_TRY(const bool on, on_or_off(value));
    if (!flag_wins) o->own_devices = on;
  } else if (key == "own-devices-group") {
    if (!flag_wins) o->own_devices_group = value;
  } else if (key == "trusted-holders") {
    CARVE_TRY(o->trusted_holders, program_paths(value));
  } else if (key == "on-memory-breach") {
    CARVE_TRY(o->on_memory, breach_action(key, value));
  } else if (key == "on-compute-breach") {
    CARVE_TRY(o->on_compute, breach_action(key, value));
  } else {
    return fail(Code::kInvalidArgument,
                "unknown key; legal are runtime-dir, state-dir, lib-dir, lib-source, driver-root, cdi-dir, "
                "cgroup-root, host-root, driver-mount, driver-libraries, health-policy, "
                "own-devices, own-devices-group, slices-for-root, allow, deny, trusted-holders, on-memory-breach, "
                "on-compute-breach");
  }
  return {};
}

}  // namespace

Result<void> parse_config(const std::string& text, const std::string& source,
                          const std::vector<std::string>& set_by_flag, HostOptions* options) {
  return codec::each_setting(text, source, [&](const std::string& key, const std::string& value) {
    const bool flag_wins = std::find(set_by_flag.begin(), set_by_flag.end(), key) != set_by_flag.end();
    return apply_line(key, value, flag_wins, options);
  });
}

Result<void> read_config(const std::string& path, const std::vector<std::string>& set_by_flag,
                         HostOptions* options) {
  CARVE_TRY(options->config_text, process::read_text(path));
  return parse_config(*options->config_text, path, set_by_flag, options);
}

Result<std::optional<std::uint32_t>> device_group(const HostOptions& host) {
  if (host.own_devices_group.empty()) return std::nullopt;
  auto group = group_id(host.own_devices_group);
  if (!group) return fail_in("own-devices-group", group.error());
  return std::optional<std::uint32_t>(*group);
}

Result<void> check_folders(const HostOptions& host) {
  CARVE_TRY_VOID(device_group(host));
  const std::pair<const char*, const std::string*> folders[] = {
      {"--runtime-dir", &host.runtime_dir}, {"--state-dir", &host.state_dir},
      {"--lib-dir", &host.lib_dir},         {"--lib-source", &host.lib_source},
      {"--driver-root", &host.driver_root}, {"--cdi-dir", &host.cdi_dir},
      {"--cgroup-root", &host.cgroup_root}, {"--host-root", &host.host_root},
      {"--health-policy", &host.health_policy}};
  for (const auto& [flag, value] : folders) {
    const bool may_be_empty =
        value != &host.runtime_dir && value != &host.state_dir && value != &host.cdi_dir;
    if (value->empty() && may_be_empty) continue;
    if (value->empty() || value->front() != '/') {
      return fail(Code::kInvalidArgument, std::string(flag) + ": \"" + *value + "\" is not an absolute path");
    }
    if (value->size() > 80) {
      return fail(Code::kInvalidArgument,
                  std::string(flag) + ": longer than 80 bytes; the paths of sockets below it would be too long");
    }
  }
  for (const auto& path : host.driver_mounts) {
    if (path.empty() || path.front() != '/') {
      return fail(Code::kInvalidArgument, "--driver-mount: \"" + path + "\" is not an absolute path");
    }
  }
  return {};
}

}  // namespace carve::cmd
