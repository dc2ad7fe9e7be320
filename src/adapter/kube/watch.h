#pragma once

#include <random>
#include <stop_token>
#include <string>
#include <utility>

#include "adapter/kube/caller.h"
#include "base/log.h"
#include "port/kube_api.h"

namespace carve::kube {

/// All items of a collection, read page by page; a watch begins at `version`.
struct Listed {
  std::vector<std::string> items;
  std::string version;
};
[[nodiscard]] Result<Listed> list_all(Caller& caller, const std::string& path, const KubeApi::Query& query,
                                      std::chrono::milliseconds limit, const std::stop_token& stop);

/// One list + watch that reconnects until it is stopped.
class Watch {
 public:
  Watch(Caller& caller, Log& log, std::string path, KubeApi::Query query, const KubeSink& sink)
      : caller_(caller), log_(log), path_(std::move(path)), query_(std::move(query)), sink_(sink) {}
  /// Runs until `stop`.
  void run(const std::stop_token& stop);

 private:
  Result<void> begin(const std::stop_token& stop);
  Result<void> follow(const std::stop_token& stop);
  Result<void> deliver(const std::string& line);
  bool failed(const Error& error);  // true: the server is unavailable; false: it only has a newer version (410)
  bool wait(const std::stop_token& stop);

  Caller& caller_;
  Log& log_;
  const std::string path_;
  const KubeApi::Query query_;
  const KubeSink& sink_;
  std::string version_;  // empty: the next request is a list
  int failures_ = 0;     // in a row
  bool away_ = false;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace carve::kube
