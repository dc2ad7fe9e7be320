#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "app/plugins/device_names.h"
#include "app/plugins/testing/fake_node_slices.h"
#include "app/plugins/testing/small_kube.h"
#include "cmd/node_plugins.h"
#include "codec/record.h"
#include "tests/integration/kubelet/scripted_kubelet.h"

namespace carve::test {

/// Real time plus the time that the test adds: a test need not wait 20 s of patience.
class JumpingClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return real_.now() + jumped(); }
  [[nodiscard]] WallTime wall_now() const override { return real_.wall_now() + jumped(); }
  bool sleep_until(Time deadline, const std::stop_token& stop) override {
    return real_.sleep_until(deadline - jumped(), stop);
  }
  void jump(Duration by) { jumped_.fetch_add(by.count()); }

 private:
  [[nodiscard]] Duration jumped() const { return Duration(jumped_.load()); }
  mutable SystemClock real_;
  std::atomic<Duration::rep> jumped_{0};
};

/// A node with the real kubelet plugins, wired as in the agent.
class PluginsTest : public testing::Test {
 protected:
  explicit PluginsTest(int cards = 16)
      : folder_(make_folder()), slices(plugins::some_cards(cards)), kubelet(folder_) {
    kube.put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1","uid":"node-uid"}})");
    kube.feed([](const KubeSink& sink) { sink.replace({}); });
  }
  ~PluginsTest() override {
    stop_agent();
    kubelet.stop();
    std::filesystem::remove_all(folder_);
  }

  static std::string make_folder() {
    std::string name = "/tmp/carve-plugins-XXXXXX";
    return ::mkdtemp(name.data());
  }
  [[nodiscard]] cmd::PluginOptions options(const std::string& unique = "uid-1") const {
    cmd::PluginOptions options;
    options.node = "n1";
    options.kubelet_dir = folder_;
    options.device_plugins = kubelet.device_plugins();
    options.unique = unique;
    options.leaves_within = {};  // an agent that ends here was killed
    return options;
  }
  [[nodiscard]] std::jthread run_agent(const cmd::PluginOptions& with) {
    return std::jthread([this, with](const std::stop_token& stop) {
      const auto done = cmd::run_plugins(with, slices, kube, clock, log, stop);
      if (!done) ADD_FAILURE() << done.error().what;
    });
  }
  void start_agent() { agent_.emplace(run_agent(options())); }
  void stop_agent() { agent_.reset(); }
  void start_all() {
    kubelet.start();
    start_agent();
    kubelet.list_after_start();
  }

  // Pods as the API server returns them.
  static std::string pod_object(const ScriptedKubelet::Pod& pod, const std::string& record,
                                bool ended = false) {
    std::string escaped;
    for (const char c : record) escaped += (c == '"' ? "\\\"" : std::string(1, c));
    return fmt::format(R"({{"metadata":{{"namespace":"{}","name":"{}","uid":"{}","annotations":{{{}}}}},)"
                       R"("spec":{{"nodeName":"n1"}},"status":{{"phase":"{}"}}}})",
                       pod.namespace_name, pod.name, pod.uid,
                       record.empty() ? "" : fmt::format(R"("carve.elasticgpu.io/record":"{}")", escaped),
                       ended ? "Failed" : "Pending");
  }
  /// A record that assigns the card `cards[i]` to container i.
  [[nodiscard]] std::string record(const ScriptedKubelet::Pod& pod, const std::vector<int>& cards,
                                   Bytes memory = Bytes::gib(2), const std::string& uid = "",
                                   const std::string& dialect = "native") const {
    Record out;
    out.epoch = 1;
    out.owner = {OwnerKind::kPod, uid.empty() ? pod.uid : uid};
    for (std::size_t i = 0; i < pod.containers.size(); ++i) {
      RecordPart part;
      part.part = pod.containers[i].name;
      part.phase = pod.containers[i].init ? Phase::kInit : Phase::kRun;
      part.dialect = dialect;
      part.cards.push_back({card(cards.at(i)), memory, CoreShare(10)});
      out.parts.push_back(part);
    }
    return *codec::encode_record(out);
  }
  [[nodiscard]] CardId card(int index) const {
    return slices.cards().cards.at(static_cast<std::size_t>(index)).id;
  }
  void api_has(const ScriptedKubelet::Pod& pod, const std::string& with_record, bool ended = false) {
    const auto object = pod_object(pod, with_record, ended);
    kube.put(fmt::format("/api/v1/namespaces/{}/pods/{}", pod.namespace_name, pod.name), object);
    kube.feed([object](const KubeSink& sink) { sink.change({KubeChange::Kind::kPut, object}); });
  }
  void api_deletes(const ScriptedKubelet::Pod& pod) {
    const auto object = pod_object(pod, "");
    kube.feed([object](const KubeSink& sink) { sink.change({KubeChange::Kind::kDeleted, object}); });
  }
  static ScriptedKubelet::Pod pod(const std::string& name, const std::string& uid,
                                  const std::vector<std::string>& containers = {"main"}) {
    ScriptedKubelet::Pod pod;
    pod.name = name;
    pod.uid = uid;
    for (const auto& container : containers) {
      ScriptedKubelet::Container one;
      one.name = container;
      one.init = container.starts_with("init");
      pod.containers.push_back(one);
    }
    return pod;
  }
  /// The card behind this container's CDI name; empty: the name resolves to nothing.
  [[nodiscard]] CardId behind(const ScriptedKubelet::Container& container) const {
    const auto found = slices.behind(container.cdi);
    return found.size() == 1 ? found[0].card : CardId();
  }
  [[nodiscard]] static bool eventually(const std::function<bool()>& good) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!good()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  /// True when the agent has logged a line that contains these words.
  [[nodiscard]] bool logged(std::string_view words) const {
    const std::lock_guard lock(log_mutex_);
    return log_lines_.find(words) != std::string::npos;
  }
  /// Like eventually(), while the agent's clock runs far ahead. The agent's wait may begin at any time (a new agent has
  /// not received the pods yet), so a single jump may come too early.
  [[nodiscard]] bool in_the_long_run(const std::function<bool()>& good) {
    return eventually([&] {
      clock.jump(std::chrono::seconds(1));
      return good();
    });
  }

 private:
  std::string folder_;
  mutable std::mutex log_mutex_;
  std::string log_lines_;

 protected:
  plugins::FakeNodeSlices slices;
  plugins::SmallKube kube;
  JumpingClock clock;
  Log log{[this](std::string_view line) {
    const std::lock_guard lock(log_mutex_);
    log_lines_.append(line).append("\n");
  }};
  ScriptedKubelet kubelet;

 private:
  std::optional<std::jthread> agent_;
};

}  // namespace carve::test
