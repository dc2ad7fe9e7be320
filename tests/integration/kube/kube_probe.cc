// The client of the API server as a program that a test in another language can drive: one call per line.
//   {"id": 1, "do": "get", "path": "/api/v1/nodes/a", "query": [["k", "v"]], "body": "…", "kind": "merge"}
//   {"id": 2, "do": "watch", "path": "/api/v1/pods", "query": []}      {"id": 2, "do": "stop"}
//   {"id": 3, "do": "usage"}    resident KiB and the process's CPU in microseconds
// Answers carry the id: {"id", "ok": …} or {"id", "code", "what"}. A watch sends replace, put, deleted, trouble and
// ended. Each call runs on its own thread.

#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "adapter/kube/kube_client.h"
#include "base/clock.h"
#include "base/log.h"

namespace carve {
namespace {

using nlohmann::json;

class Output {
 public:
  void say(const json& line) {
    const std::lock_guard lock(mutex_);
    const auto text = line.dump(-1, ' ', false, json::error_handler_t::replace);
    std::fprintf(stdout, "%s\n", text.c_str());
    std::fflush(stdout);
  }
  void failed(const json& id, const Error& error) {
    say({{"id", id}, {"code", std::string(to_string(error.code))}, {"what", error.what}});
  }

 private:
  std::mutex mutex_;
};

json usage() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto micros = [](const timeval& time) { return time.tv_sec * 1'000'000 + time.tv_usec; };
  long resident = 0;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> resident;
  }
  return {{"resident_kib", resident}, {"cpu_us", micros(used.ru_utime) + micros(used.ru_stime)}};
}

KubePatch kind_of(const std::string& name) {
  if (name == "json") return KubePatch::kJson;
  if (name == "strategic") return KubePatch::kStrategic;
  return name == "apply" ? KubePatch::kApply : KubePatch::kMerge;
}

KubeApi::Query query_of(const json& call) {
  KubeApi::Query query;
  for (const auto& pair : call.value("query", json::array()))
    query.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  return query;
}

void run_watch(KubeApi& api, Output& out, const json& call, const std::stop_token& stop) {
  const auto id = call["id"];
  KubeSink sink;
  sink.replace = [&](const std::vector<std::string>& objects) { out.say({{"id", id}, {"replace", objects}}); };
  sink.change = [&](const KubeChange& change) {
    out.say({{"id", id}, {change.kind == KubeChange::Kind::kPut ? "put" : "deleted", change.object}});
  };
  sink.trouble = [&](const Error& error) {
    out.say({{"id", id}, {"trouble", std::string(to_string(error.code))}, {"what", error.what}});
  };
  api.watch(call["path"], query_of(call), sink, stop);
  out.say({{"id", id}, {"ended", true}});
}

void run_call(KubeApi& api, Output& out, const json& call) {
  const std::string verb = call["do"];
  const std::string path = call["path"];
  const auto body = call.value("body", std::string());
  const auto answer = [&](const auto& result) {
    if (!result) return out.failed(call["id"], result.error());
    out.say({{"id", call["id"]}, {"ok", *result}});
  };
  if (verb == "get") return answer(api.get(path, query_of(call)));
  if (verb == "list") return answer(api.list(path, query_of(call)));
  if (verb == "create") return answer(api.create(path, body));
  if (verb == "replace") return answer(api.replace(path, body));
  if (verb == "patch") return answer(api.patch(path, kind_of(call.value("kind", "merge")), body, query_of(call)));
  if (const auto gone = api.remove(path, body); !gone) return out.failed(call["id"], gone.error());
  out.say({{"id", call["id"]}, {"ok", ""}});
}

/// Limits so short that a test need not wait: a second and a half at most.
kube::Limits short_limits() {
  using std::chrono::milliseconds;
  return {.call = milliseconds(1500),
          .page = milliseconds(1500),
          .silence = milliseconds(1000),
          .first_back_off = milliseconds(20),
          .most_back_off = milliseconds(200)};
}

int serve(const std::string& kubeconfig, const kube::Limits& limits) {
  SystemClock clock;
  Log log;
  Output out;
  const auto api = kube::open(kubeconfig, clock, log, limits);
  if (!api) {
    out.failed(0, api.error());
    return 1;
  }
  out.say({{"id", 0}, {"ok", "open"}});
  std::map<int, std::jthread> running;
  for (std::string line; std::getline(std::cin, line);) {
    const auto call = json::parse(line);
    const int id = call["id"];
    if (call["do"] == "usage") {
      out.say({{"id", id}, {"ok", usage()}});
    } else if (call["do"] == "stop") {
      if (const auto found = running.find(id); found != running.end()) found->second.request_stop();
    } else if (call["do"] == "watch") {
      running[id] = std::jthread([&, call](const std::stop_token& stop) { run_watch(**api, out, call, stop); });
    } else {
      running[id] = std::jthread([&, call](const std::stop_token&) { run_call(**api, out, call); });
    }
  }
  return 0;  // the threads are stopped and joined before the client ends
}

}  // namespace
}  // namespace carve

int main(int count, char** words) {
  const bool quick = count == 3 && std::string(words[1]) == "--short";
  if (count != 2 && !quick) {
    std::fprintf(stderr, "usage: kube-probe [--short] KUBECONFIG\n");
    return 2;
  }
  return carve::serve(words[count - 1], quick ? carve::short_limits() : carve::kube::Limits());
}
