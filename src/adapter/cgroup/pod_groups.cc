#include "adapter/cgroup/pod_groups.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "adapter/process/proc_fs.h"
#include "adapter/process/text_file.h"

namespace carve::cgroup {
namespace {

constexpr std::string_view kSystemdEnd = ".slice";

/// True for a pod UID: 32 hexadecimal digits, with four dashes or none.
bool is_uid(std::string_view text) {
  const auto digits = std::count_if(text.begin(), text.end(),
                                    [](unsigned char c) { return std::isxdigit(c) != 0; });
  const auto dashes = std::count(text.begin(), text.end(), '-');
  return digits == 32 && (dashes == 0 || dashes == 4) &&
         static_cast<std::size_t>(digits + dashes) == text.size();
}

/// The pod UID in one component of a path; empty: there is none.
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

/// The mount point of a cgroup v1 controller from mountinfo; with an empty `controller`, that of cgroup2.
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

/// True for errors that mean that the process does not exist, or must not be seen here. Other errors (no descriptor, no
/// memory) prove nothing: a process counts as alive unless it is known to have ended.
bool no_process(const Error& error) { return error.code == Code::kNotFound || error.code == Code::kPermissionDenied; }

/// A thread group leader that has ended is a zombie while another thread runs, or waits in the driver forever.
bool lives(const std::string& folder) {
  const auto status = process::read_text(folder + "/status");
  if (!status) return !no_process(status.error());
  if (!process::has_ended(*status)) return true;
  const auto threads = process::list_folder(folder + "/task");
  if (!threads) return !no_process(threads.error());
  return std::any_of(threads->begin(), threads->end(), [&](const std::string& thread) {
    const auto own = process::read_text(folder + "/task/" + thread + "/status");
    return own ? !process::has_ended(*own) : !no_process(own.error());
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
  const auto mounts = process::read_text("/proc/self/mountinfo", 16U << 20U);
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
  const auto text = process::read_text(folder + "/cgroup");
  if (!text && no_process(text.error())) return std::nullopt;
  if (!text && text.error().code == Code::kResourceExhausted) return tl::unexpected(text.error());
  // Only this process cannot be examined: the kernel refuses a path longer than PATH_MAX (ENAMETOOLONG), which a tenant
  // can create with nested groups. The other processes must still be found.
  auto found = text ? parse(pid, *text) : PodProcess{pid, {}, {}};
  if (found && !lives(folder)) return std::nullopt;
  return found;
}

std::optional<PodProcess> PodGroups::process(std::int32_t pid) const {
  auto found = look_at(pid).value_or(std::nullopt);
  return found && !found->pod.empty() ? found : std::nullopt;
}

Result<std::vector<PodProcess>> PodGroups::processes() const {
  const auto names = process::list_folder(proc_);
  if (!names) return fail(Code::kUnavailable, "the processes of this machine cannot be read: " + names.error().what);
  std::vector<PodProcess> all;
  for (const auto& name : *names) {
    std::int32_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    auto found = look_at(pid);
    if (!found) return fail(Code::kUnavailable, "the processes of this machine cannot be read: " + found.error().what);
    if (*found) all.push_back(std::move(**found));
  }
  return all;
}

Result<void> PodGroups::freeze(const std::string& group, bool frozen) {
  const bool v1 = group.size() > 6 && group.compare(group.size() - 6, 6, ".state") == 0;
  if (v1) return process::write_text(group, frozen ? "FROZEN" : "THAWED");
  return process::write_text(group, frozen ? "1" : "0");
}

}  // namespace carve::cgroup
