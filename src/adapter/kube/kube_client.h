#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "port/kube_api.h"

namespace carve::kube {

/// How long things may take; the defaults are for production.
struct Limits {
  std::chrono::milliseconds call = std::chrono::seconds(10);      // one call with all its repetitions
  std::chrono::milliseconds page = std::chrono::seconds(30);      // one page of a watch's list
  std::chrono::milliseconds silence = std::chrono::seconds(130);  // of a watch; bookmarks come every minute
  std::chrono::milliseconds first_back_off = std::chrono::milliseconds(250);
  std::chrono::milliseconds most_back_off = std::chrono::seconds(30);
  unsigned per_second = 20;  // requests, over time; the server has its own (priority and fairness)
  unsigned saved_up = 40;    // that may come at once after a quiet time
  std::chrono::milliseconds plugin = std::chrono::seconds(60);  // a credential plug-in's run; at a terminal five times
  unsigned idle = 4;         // connections that are kept for the next call
};

/// The API server that `kubeconfig` names; with "" the one of the cluster we run in as a pod
/// (KUBERNETES_SERVICE_HOST and _PORT, the ServiceAccount's folder). Reads files and connects to nothing: a
/// server that is away shows in the calls. Token, authority and client certificate are read again every
/// minute and when the server no longer takes them. A credential plug-in (user.exec) runs here for the first time, and
/// again when what it gave expires or is refused; that time is not counted against a call's. `clock` and `log`
/// outlive what is returned.
///   errors  kNotFound, kInvalidArgument: the file, the field and what is legal; a plug-in's; no credential is quoted
///   cost    about 100 KiB per open connection, at most Limits::idle that idle, closed after a minute
[[nodiscard]] Result<std::unique_ptr<KubeApi>> open(const std::string& kubeconfig, Clock& clock, Log& log,
                                                   const Limits& limits = {});
/// The same with several kubeconfigs, merged as kubectl does ($KUBECONFIG); those that are not there are skipped.
///   errors  also kNotFound: none is there, or none was given
[[nodiscard]] Result<std::unique_ptr<KubeApi>> open_merged(const std::vector<std::string>& kubeconfigs, Clock& clock,
                                                          Log& log, const Limits& limits = {});

}  // namespace carve::kube
