#include "adapter/kube/kube_client.h"

#include <utility>

#include "adapter/kube/caller.h"
#include "adapter/kube/watch.h"
#include "codec/kube/messages.h"

namespace carve::kube {
namespace {

constexpr auto kJson = "application/json";

const char* content_type(KubePatch kind) {
  switch (kind) {
    case KubePatch::kJson: return "application/json-patch+json";
    case KubePatch::kMerge: return "application/merge-patch+json";
    case KubePatch::kStrategic: return "application/strategic-merge-patch+json";
    case KubePatch::kApply: return "application/apply-patch+yaml";
  }
  return kJson;
}

class KubeClient final : public KubeApi {
 public:
  KubeClient(std::vector<std::string> kubeconfigs, Clock& clock, Log& log, const Limits& limits, std::string context)
      : caller_(std::move(kubeconfigs), clock, limits, std::move(context)), log_(log) {}

  Result<void> check() { return caller_.check(); }

  Result<std::string> get(const std::string& path, const Query& query) override {
    return call("GET", path, query, "", {});
  }
  Result<std::vector<std::string>> list(const std::string& path, const Query& query) override {
    CARVE_TRY(auto all, list_all(caller_, path, query, caller_.limits().call, {}));
    return std::move(all.items);
  }
  Result<std::string> create(const std::string& path, const std::string& body) override {
    return call("POST", path, {}, kJson, body);
  }
  Result<std::string> replace(const std::string& path, const std::string& body) override {
    return call("PUT", path, {}, kJson, body);
  }
  Result<std::string> patch(const std::string& path, KubePatch kind, const std::string& body,
                            const Query& query) override {
    auto asked = query;
    bool named = kind != KubePatch::kApply;
    for (const auto& [key, value] : query) named = named || key == "fieldManager";
    if (!named) asked.emplace_back("fieldManager", "carve");
    return call("PATCH", path, asked, content_type(kind), body);
  }
  Result<void> remove(const std::string& path, const std::string& body) override {
    CARVE_TRY(const auto ignored, call("DELETE", path, {}, kJson, body));
    return {};
  }
  void watch(const std::string& path, const Query& query, const KubeSink& sink,
             const std::stop_token& stop) override {
    Watch(caller_, log_, path, query, sink).run(stop);
  }

 private:
  Result<std::string> call(const char* method, const std::string& path, const Query& query, const char* type,
                           const std::string& body) {
    CARVE_TRY(auto target, codec::kube_target(path, query));
    HttpRequest request{
        .method = method, .target = std::move(target), .content_type = type, .body = body, .token = {}};
    return caller_.call(std::move(request), caller_.limits().call);
  }

  Caller caller_;
  Log& log_;
};

Result<std::unique_ptr<KubeApi>> opened(std::vector<std::string> kubeconfigs, Clock& clock, Log& log,
                                        const Limits& limits, const std::string& context = {}) {
  auto client = std::make_unique<KubeClient>(std::move(kubeconfigs), clock, log, limits, context);
  CARVE_TRY_VOID(client->check());
  return client;
}

}  // namespace

Result<std::unique_ptr<KubeApi>> open(const std::string& kubeconfig, Clock& clock, Log& log, const Limits& limits) {
  return opened(kubeconfig.empty() ? std::vector<std::string>() : std::vector{kubeconfig}, clock, log, limits);
}

Result<std::unique_ptr<KubeApi>> open_merged(const std::vector<std::string>& kubeconfigs, Clock& clock, Log& log,
                                            const Limits& limits, const std::string& context) {
  // An empty list must not select the pod's ServiceAccount, because the caller wants files.
  if (kubeconfigs.empty()) return fail(Code::kNotFound, "kubeconfig: the list of files is empty");
  return opened(kubeconfigs, clock, log, limits, context);
}

}  // namespace carve::kube
