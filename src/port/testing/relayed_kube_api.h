#pragma once

#include <string>
#include <vector>

#include "port/kube_api.h"

namespace carve::testing {

/// Forwards every call to another KubeApi; a test overrides the calls that it is about.
class RelayedKubeApi : public KubeApi {
 public:
  explicit RelayedKubeApi(KubeApi& api) : api_(api) {}
  Result<std::string> get(const std::string& path, const Query& query) override { return api_.get(path, query); }
  Result<std::vector<std::string>> list(const std::string& path, const Query& query) override {
    return api_.list(path, query);
  }
  Result<std::string> create(const std::string& path, const std::string& body) override {
    return api_.create(path, body);
  }
  Result<std::string> replace(const std::string& path, const std::string& body) override {
    return api_.replace(path, body);
  }
  Result<std::string> patch(const std::string& path, KubePatch kind, const std::string& body,
                            const Query& query) override {
    return api_.patch(path, kind, body, query);
  }
  Result<void> remove(const std::string& path, const std::string& body) override { return api_.remove(path, body); }
  void watch(const std::string& path, const Query& query, const KubeSink& sink, const std::stop_token& stop) override {
    api_.watch(path, query, sink, stop);
  }

 protected:
  KubeApi& api_;
};

}  // namespace carve::testing
