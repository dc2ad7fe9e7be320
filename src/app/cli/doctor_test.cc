#include "app/cli/doctor.h"

#include <gtest/gtest.h>

namespace carve::cli {
namespace {

HostFacts healthy_host() {
  HostFacts host;
  host.runtime_folder = "/run/carve";
  host.agent_socket_exists = true;
  host.supervisor_lives = host.agent_lives = host.arbiter_lives = true;
  host.runtime_exists = host.runtime_on_tmpfs = true;
  host.state_free = Bytes::gib(1);
  return host;
}

AgentView healthy_view() {
  AgentView view;
  view.gpu_state = "ok";
  view.arbiter_state = "ok";
  CardView card;
  card.card.id = CardId("GPU-1");
  card.card.model = "NVIDIA H200";
  view.cards.push_back(card);
  return view;
}

std::string rendered(const HostFacts& host, const std::optional<AgentView>& view) {
  const auto findings = diagnose(host, view);
  for (const auto& finding : findings) {
    EXPECT_FALSE(finding.cause.empty()) << finding.what;
    EXPECT_FALSE(finding.fix.empty()) << finding.what;
  }
  return render_findings(findings, view);
}

TEST(Doctor, AHealthyMachineHasNoFindings) {
  EXPECT_FALSE(anything_wrong(diagnose(healthy_host(), healthy_view())));
  EXPECT_NE(rendered(healthy_host(), healthy_view()).find("nothing is wrong"), std::string::npos);
}

TEST(Doctor, DoesNotReportWhatOnlyRootCanSeeAsAbsent) {
  auto host = healthy_host();
  host.supervisor_lives = host.agent_lives = host.arbiter_lives = std::nullopt;
  EXPECT_FALSE(anything_wrong(diagnose(host, healthy_view())));
  host.agent_error = "x";
  const auto words = rendered(host, std::nullopt);
  EXPECT_EQ(words.find("arbiter does not run"), std::string::npos) << words;
  EXPECT_EQ(words.find("no supervisor"), std::string::npos) << words;
}

TEST(Doctor, ReportsEveryFaultWithCauseAndFix) {
  struct Row {
    const char* expected;
    void (*spoil)(HostFacts&, std::optional<AgentView>&);
  };
  const Row rows[] = {
      {"no `carve up` runs", [](HostFacts& h, auto&) { h.supervisor_lives = false; }},
      {"left a stale socket",
       [](HostFacts& h, auto& v) {
         h.agent_lives = false;
         h.agent_error = "x";
         v.reset();
       }},
      {"runs but does not answer",
       [](HostFacts& h, auto& v) {
         h.agent_error = "x";
         v.reset();
       }},
      {"agent does not run",
       [](HostFacts& h, auto& v) {
         h.agent_socket_exists = false;
         h.agent_lives = false;
         h.agent_error = "x";
         v.reset();
       }},
      {"`carve doctor` as root",
       [](HostFacts& h, auto& v) {
         h.supervisor_lives = h.agent_lives = h.arbiter_lives = std::nullopt;
         h.agent_error = "x";
         v.reset();
       }},
      {"NVML is absent",
       [](HostFacts&, auto& v) {
         v->gpu_state = "absent";
         v->gpu_reason = "x";
       }},
      {"NVML is hanging",
       [](HostFacts&, auto& v) {
         v->gpu_state = "hanging";
         v->gpu_reason = "x";
       }},
      {"arbiter is stopped",
       [](HostFacts&, auto& v) {
         v->arbiter_state = "stopped";
         v->arbiter_reason = "x";
       }},
      {"journal cannot be written", [](HostFacts&, auto& v) { v->journal_error = "disk full"; }},
      {"libcarve is not usable", [](HostFacts&, auto& v) { v->library_error = "missing"; }},
      {"is unhealthy",
       [](HostFacts&, auto& v) {
         v->cards[0].card.health = {false, "lost"};
       }},
      {"second line acted",
       [](HostFacts&, auto& v) {
         v->events.push_back({1, "breach-memory", "run-1", "killed"});
       }},
      {"mounted noexec", [](HostFacts& h, auto&) { h.libraries_noexec = true; }},
      {"state folder cannot be written", [](HostFacts& h, auto&) { h.state_error = "read-only"; }},
      {"is full", [](HostFacts& h, auto&) { h.state_free = Bytes::mib(1); }},
      {"mount it: ", [](HostFacts& h, auto&) { h.cgroup_error = "no mount"; }},
      {"mount -o remount,rw /sys/fs/cgroup",
       [](HostFacts& h, auto&) {
         h.cgroup_error = "read-only";
         h.cgroup_mount = "/sys/fs/cgroup";
         h.cgroup_read_only = true;
       }},
      {"another folder below /sys/fs/cgroup",
       [](HostFacts& h, auto&) {
         h.cgroup_error = "a file is there";
         h.cgroup_mount = "/sys/fs/cgroup";
       }},
      {"journal.damaged, then start", [](HostFacts& h, auto&) { h.journal_error = "line 3: damaged"; }},
      {"device node /dev/nvidia0", [](HostFacts& h, auto&) { h.missing_nodes = {"/dev/nvidia0"}; }},
      {"device file is not closed",
       [](HostFacts&, auto& v) {
         v->own_devices = true;
         v->device_error = "x";
       }},
      {"/dev/nvidia0 has mode 0666, owner 0, group 0; expected: 0660, 0, 44",
       [](HostFacts& h, auto& v) {
         v->own_devices = true;
         v->device_mode = 0660;
         v->device_group = 44;
         h.card_files = {{"/dev/nvidia0", 0666, 0, 0}};
       }},
      {"NVreg_ModifyDeviceFiles=0",
       [](HostFacts& h, auto& v) {
         v->own_devices = true;
         h.driver_sets_mode = 0666;
       }},
  };
  for (const auto& row : rows) {
    auto host = healthy_host();
    std::optional<AgentView> view = healthy_view();
    row.spoil(host, view);
    EXPECT_TRUE(anything_wrong(diagnose(host, view))) << row.expected;
    EXPECT_NE(rendered(host, view).find(row.expected), std::string::npos) << row.expected << "\n"
                                                                          << rendered(host, view);
  }
  auto host = healthy_host();
  host.user_namespaces_error = "max_user_namespaces is 0";
  EXPECT_FALSE(anything_wrong(diagnose(host, healthy_view())));
  EXPECT_NE(rendered(host, healthy_view()).find("users other than root cannot"), std::string::npos);
}

TEST(Doctor, ReportsOpenDeviceFilesOfCards) {
  auto host = healthy_host();
  host.card_files = {{"/dev/nvidia0", 0600, 0, 0}, {"/dev/nvidia1", 0666, 0, 0}};
  host.driver_sets_mode = 0666;
  auto view = healthy_view();
  EXPECT_FALSE(anything_wrong(diagnose(host, view))) << "own-devices is optional";
  EXPECT_NE(rendered(host, view).find("without a slice: /dev/nvidia1 (0666)"), std::string::npos)
      << rendered(host, view);
  host.is_node = true;
  EXPECT_EQ(rendered(host, view).find("devices-open"), std::string::npos) << "own-devices is not available on a node";
  host.is_node = false;
  view.own_devices = true;
  view.device_mode = 0600;
  host.card_files[1].mode = 0600;
  host.driver_sets_mode = 0660;
  EXPECT_TRUE(diagnose(host, view).empty()) << rendered(host, view);
}

}  // namespace
}  // namespace carve::cli
