#include "adapter/cgroup/pod_groups.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "adapter/process/text_file.h"

namespace carve {
namespace {

constexpr std::string_view kSystemdEnd = ".slice";

/// 32 hexadecimal digits, with or without dashes: what the kubelet calls pods. Nothing else is
/// taken for one.
bool is_uid(std::string_view text) {
  const auto digits = std::count_if(text.begin(), text.end(),
                                    [](unsigned char c) { return std::isxdigit(c) != 0; });
  const auto dashes = std::count(text.begin(), text.end(), '-');
  return digits == 32 && (dashes == 0 || dashes == 4) &&
         static_cast<std::size_t>(digits + dashes) == text.size();
}

/// The UID in one component of a path; empty: it is no pod's.
std::string uid_in(std::string_view name) {
  if (name.size() > kSystemdEnd.size() &&
      name.substr(name.size() - kSystemdEnd.size()) == kSystemdEnd) {
    name.remove_suffix(kSystemdEnd.size());
    const auto dash = name.rfind('-');
    if (dash == std::string_view::npos) return {};
    name.remove_prefix(dash + 1);
  }
  if (name.substr(0, 3) != "pod") return {};
  std::string uid(name.substr(3));
  std::replace(uid.begin(), uid.end(), '_', '-');
  return is_uid(uid) ? uid : std::string();
}

/// Mount point of a cgroup file system out of mountinfo; `controller` empty: of cgroup2.
std::string mount_of(const std::string& mountinfo, const std::string& controller) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, point, word, type, source, options;
    fields >> id >> parent >> device >> root >> point;
    while (fields >> word && word != "-") {
    }
    fields >> type >> source >> options;
    if (root != "/") continue;
    if (controller.empty()
            ? type == "cgroup2"
            : type == "cgroup" &&
                  ("," + options + ",").find("," + controller + ",") != std::string::npos)
      return point;
  }
  return {};
}

/// State letter of "/proc/<pid>/stat": behind the name, which may hold anything.
char state_in(std::string_view stat) {
  const auto end = stat.rfind(") ");
  return end == std::string_view::npos || end + 2 >= stat.size() ? 'X' : stat[end + 2];
}

bool dead(char state) { return state == 'Z' || state == 'X'; }

/// What says that there is nobody, or nobody who may be seen here. Everything else (no descriptor, no memory) says
/// nothing, and whoever is not known to be gone lives.
bool nobody(const Error& error) { return error.code == Code::kNotFound || error.code == Code::kPermissionDenied; }

/// A leader that ended is a zombie while another of its threads goes on, or waits in the driver for
/// ever.
bool lives(const std::string& folder) {
  const auto stat = read_text(folder + "/stat");
  if (!stat) return !nobody(stat.error());
  if (!dead(state_in(*stat))) return true;
  const auto threads = list_folder(folder + "/task");
  if (!threads) return !nobody(threads.error());
  return std::any_of(threads->begin(), threads->end(), [&](const std::string& thread) {
    const auto own = read_text(folder + "/task/" + thread + "/stat");
    return own ? !dead(state_in(*own)) : !nobody(own.error());
  });
}

}  // namespace

PodPath pod_path(std::string_view cgroup) {
  PodPath found;
  std::size_t begin = 0;
  while (begin < cgroup.size()) {
    const auto end = std::min(cgroup.find('/', begin + 1), cgroup.size());
    const auto name = cgroup.substr(begin + 1, end - begin - 1);
    if (!found.pod.empty()) {
      found.container = std::string(cgroup.substr(0, end));
      return found;
    }
    found.pod = uid_in(name);
    begin = end;
  }
  return found;
}

PodGroups::PodGroups(std::string proc) : proc_(std::move(proc)) {
  const auto mounts = read_text("/proc/self/mountinfo", 16U << 20U);
  if (!mounts) return;
  unified_ = mount_of(*mounts, "");
  freezer_ = mount_of(*mounts, "freezer");
}

std::optional<PodProcess> PodGroups::parse(std::int32_t pid, std::string_view text) const {
  PodProcess found;
  found.pid = pid;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {  // "6:freezer:/kubepods/pod…/…", "0::/…"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto path = pod_path(std::string_view(line).substr(second + 1));
    if (path.pod.empty()) continue;
    if (found.pod.empty()) found.pod = path.pod;
    if (path.pod != found.pod || path.container.empty()) continue;
    if (controllers.find(",freezer,") != std::string::npos && !freezer_.empty())
      found.group = freezer_ + path.container + "/freezer.state";
    if (controllers == ",," && !unified_.empty() && found.group.empty())
      found.group = unified_ + path.container + "/cgroup.freeze";
  }
  if (found.pod.empty()) return std::nullopt;
  return found;
}

Result<std::optional<PodProcess>> PodGroups::look_at(std::int32_t pid) const {
  const auto folder = proc_ + "/" + std::to_string(pid);
  const auto text = read_text(folder + "/cgroup");
  if (!text && nobody(text.error())) return std::nullopt;
  if (!text && text.error().code == Code::kResourceExhausted) return tl::unexpected(text.error());
  // This one alone cannot be told: a path of more than PATH_MAX, which a tenant can make of groups of its own, is
  // refused by the kernel (ENAMETOOLONG). It is not to keep everybody else from being seen.
  auto found = text ? parse(pid, *text) : PodProcess{pid, {}, {}};
  if (found && !lives(folder)) return std::nullopt;
  return found;
}

std::optional<PodProcess> PodGroups::process(std::int32_t pid) const {
  auto found = look_at(pid).value_or(std::nullopt);
  return found && !found->pod.empty() ? found : std::nullopt;
}

Result<std::vector<PodProcess>> PodGroups::processes() const {
  const auto names = list_folder(proc_);
  if (!names)
    return fail(Code::kUnavailable,
                "the machine's processes cannot be seen: " + names.error().what);
  std::vector<PodProcess> all;
  for (const auto& name : *names) {
    std::int32_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    auto found = look_at(pid);
    if (!found) return fail(Code::kUnavailable, "the machine's processes cannot be seen: " + found.error().what);
    if (*found) all.push_back(std::move(**found));
  }
  return all;
}

Result<void> PodGroups::freeze(const std::string& group, bool frozen) {
  const bool v1 = group.size() > 6 && group.compare(group.size() - 6, 6, ".state") == 0;
  if (v1) return write_text(group, frozen ? "FROZEN" : "THAWED");
  return write_text(group, frozen ? "1" : "0");
}

}  // namespace carve
