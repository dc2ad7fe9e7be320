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

/// Time and rate limits. The defaults are for production.
struct Limits {
  std::chrono::milliseconds call = std::chrono::seconds(10);  // one call including its retries
  std::chrono::milliseconds page = std::chrono::seconds(30);  // one page of the list of a watch
  std::chrono::milliseconds silence =
      std::chrono::seconds(130);  // of a watch; the server sends a bookmark every minute
  std::chrono::milliseconds first_back_off = std::chrono::milliseconds(250);
  std::chrono::milliseconds most_back_off = std::chrono::seconds(30);
  unsigned per_second = 20;  // average request rate; the server has its own limits (priority and fairness)
  unsigned saved_up = 40;    // burst: requests that may be sent at once after a quiet time
  std::chrono::milliseconds plugin =
      std::chrono::seconds(60);  // one run of a credential plug-in; five times as long with a terminal
  unsigned idle = 4;             // connections kept for later calls
};

/// A client of the API server that `kubeconfig` names; with "", of the cluster in which this process runs as a pod
/// (KUBERNETES_SERVICE_HOST and _PORT, the ServiceAccount's folder). Reads files but does not connect: an unreachable
/// server is reported by the calls. Token, authority and client certificate are read again every minute and when the
/// server refuses them. A credential plug-in (user.exec) runs here for the first time, and again when its credential
/// expires or is refused; that time does not count against the limit of a call. `clock` and `log` must outlive the
/// client.
///   errors  kNotFound, kInvalidArgument: the text has the file, the field and what is legal; those of a plug-in. No
///           text contains a credential
///   cost    about 100 KiB per open connection; at most Limits::idle idle ones, which are closed after a minute
[[nodiscard]] Result<std::unique_ptr<KubeApi>> open(const std::string& kubeconfig, Clock& clock, Log& log,
                                                   const Limits& limits = {});
/// The same with several kubeconfigs, merged like kubectl does ($KUBECONFIG). Missing files are skipped. `context`: of
/// the kubeconfigs; empty: the current one.
///   errors  also kNotFound: `kubeconfigs` is empty, or none of the files exists
[[nodiscard]] Result<std::unique_ptr<KubeApi>> open_merged(const std::vector<std::string>& kubeconfigs, Clock& clock,
                                                          Log& log, const Limits& limits = {},
                                                          const std::string& context = {});

}  // namespace carve::kube
