#include "app/cli/cluster/agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "app/cli/cluster/objects.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/history/history_segment.h"

namespace carve::cli {
namespace {

constexpr std::size_t kAtOnce = 16;

std::string pods_in(const std::string& namespace_name) {
  return fmt::format("/api/v1/namespaces/{}/pods", namespace_name);
}

/// The agents' pods, by node. A node has two during a takeover; either of them answers.
///   errors  kNotFound: there is none
Result<std::map<std::string, std::vector<std::string>>> agents_of(KubeApi& api, const std::string& namespace_name,
                                                                  const std::string& node) {
  CARVE_TRY(const auto pods, api.list(pods_in(namespace_name), {{"labelSelector", kAgents}}));
  std::map<std::string, std::vector<std::string>> agents;
  for (const auto& text : pods) {
    const auto pod = codec::parse_cluster_pod(text);
    if (!pod || pod->node.empty() || (!node.empty() && pod->node != node)) continue;
    agents[pod->node].push_back(pod->ask.name);
  }
  if (!agents.empty()) return agents;
  return fail(Code::kNotFound, fmt::format("no agent runs{} in namespace {}; if Carve is in another namespace, name it "
                                           "with --carve-namespace",
                                           node.empty() ? std::string() : " on node \"" + node + "\"", namespace_name));
}

/// Stores the answer of the agent number `at`, or refuses it; then the node's other agent is asked.
using Take = std::function<Result<void>(std::size_t at, const std::string& text)>;

/// Asks one agent per node, several concurrently.
///   out   why there is no answer, by node; empty: there is one
std::vector<Error> ask_all(KubeApi& api, const std::string& namespace_name,
                           const std::map<std::string, std::vector<std::string>>& agents, const std::string& path,
                           const KubeApi::Query& query, const Take& take, const std::stop_token& stop = {}) {
  std::vector<const std::vector<std::string>*> pods;
  for (const auto& row : agents) pods.push_back(&row.second);
  std::vector<Error> errors(pods.size());
  std::atomic<std::size_t> next = 0;
  const auto ask_one = [&](std::size_t at) {
    for (const auto& pod : *pods[at]) {
      const auto text = api.get(fmt::format("{}/{}/proxy{}", pods_in(namespace_name), pod, path), query);
      const auto taken = text ? take(at, *text) : Result<void>(tl::unexpected(text.error()));
      errors[at] = taken
                       ? Error{}
                       : Error{taken.error().code, fmt::format("pod {} does not answer: {}", pod, taken.error().what)};
      if (taken) return;
    }
  };
  std::vector<Thread> asking;
  for (std::size_t i = 0; i < std::min(kAtOnce, pods.size()); ++i) {
    asking.emplace_back("top-ask", [&] {
      for (std::size_t at = next++; at < pods.size() && !stop.stop_requested(); at = next++) ask_one(at);
    });
  }
  asking.clear();  // joins
  return errors;
}

}  // namespace

Result<std::vector<AgentAnswer>> ask_each(KubeApi& api, const std::string& namespace_name, const std::string& node,
                                          const std::string& path, const KubeApi::Query& query) {
  CARVE_TRY(const auto agents, agents_of(api, namespace_name, node));
  std::vector<AgentAnswer> answers;
  answers.reserve(agents.size());
  for (const auto& row : agents) answers.push_back({row.first, std::string()});
  const auto errors =
      ask_all(api, namespace_name, agents, path, query, [&](std::size_t at, const std::string& text) -> Result<void> {
        answers[at].text = text;
        return {};
      });
  for (std::size_t at = 0; at < answers.size(); ++at) {
    if (!errors[at].what.empty()) answers[at].text = tl::unexpected(errors[at]);
  }
  return answers;
}

Result<std::vector<NodeHistory>> ask_histories(KubeApi& api, const std::string& namespace_name, const std::string& node,
                                               const HistoryQuery& query) {
  CARVE_TRY(const auto answers,
            ask_each(api, namespace_name, node, "/v1/history", codec::history_parameters(query)));
  std::vector<NodeHistory> all;
  for (const auto& one : answers) {
    auto found =
        one.text ? codec::parse_history_answer(*one.text) : Result<HistoryAnswer>(tl::unexpected(one.text.error()));
    all.push_back({one.node, std::move(found)});
  }
  return all;
}

Result<void> each_history(KubeApi& api, const std::string& namespace_name, const HistoryQuery& query,
                          const std::function<void(std::size_t)>& count,
                          const std::function<void(const Result<HistoryAnswer>&)>& take, const std::stop_token& stop) {
  CARVE_TRY(const auto agents, agents_of(api, namespace_name, ""));
  count(agents.size());
  Mutex one_at_a_time;
  const auto errors = ask_all(
      api, namespace_name, agents, "/v1/history", codec::history_parameters(query),
      [&](std::size_t, const std::string& text) -> Result<void> {
        const auto answer = codec::parse_history_answer(text);
        if (!answer) return tl::unexpected(answer.error());
        const MutexLock lock(one_at_a_time);
        take(answer);
        return {};
      },
      stop);
  for (const Error& error : errors) {
    if (!error.what.empty()) take(tl::unexpected(error));
  }
  return {};
}

Result<std::string> ask_agent(KubeApi& api, const std::string& namespace_name, const std::string& node,
                              const std::string& path, const KubeApi::Query& query) {
  CARVE_TRY(auto answers, ask_each(api, namespace_name, node, path, query));
  return std::move(answers.front().text);
}

Result<std::vector<NodeView>> ask_agents(KubeApi& api, const std::string& namespace_name, const std::string& node,
                                         const ReadView& read) {
  CARVE_TRY(const auto agents, agents_of(api, namespace_name, node));
  std::vector<NodeView> views;
  views.reserve(agents.size());
  for (const auto& row : agents) views.push_back({row.first, std::nullopt, {}});
  const auto errors = ask_all(api, namespace_name, agents, "/v1/node", {},
                              [&](std::size_t at, const std::string& text) -> Result<void> {
                                CARVE_TRY(views[at].view, read(text));
                                return {};
                              });
  for (std::size_t at = 0; at < views.size(); ++at) views[at].error = errors[at].what;
  return views;
}

}  // namespace carve::cli
