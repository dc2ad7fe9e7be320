#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/device_plugin_v1beta1.grpc.pb.h"
#include "proto/dra_health_v1alpha1.grpc.pb.h"
#include "proto/dra_v1.grpc.pb.h"
#include "proto/plugin_registration_v1.grpc.pb.h"
#include "proto/pod_resources_v1.grpc.pb.h"

namespace carve::test {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;

/// What the kubelet does with device plugins and DRA drivers, as far as a plugin can see it: the order of calls, the
/// socket wipe at its start, dialling back inside Register, the random choice of IDs, IDs that init containers hand on,
/// its checkpoint file and PodResources. It is a script, not a kubelet: the test decides what happens when.
class ScriptedKubelet {
 public:
  using Millis = std::chrono::duration<double, std::milli>;
  struct Container {
    std::string name;
    std::size_t slots = 1;
    bool init = false;             // an ordinary init container: hands its IDs on and is unknown to PodResources
    std::vector<std::string> ids;  // allocated slot IDs
    std::string cdi;               // the CDI name that Allocate returned
  };
  struct Pod {
    std::string namespace_name = "ml";
    std::string name;
    std::string uid;
    std::vector<Container> containers;  // init containers first, as in the spec
  };

  explicit ScriptedKubelet(std::string folder);
  ~ScriptedKubelet();

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string device_plugins() const { return folder_ + "/device-plugins"; }

  // Device plugins.
  void start();  // wipes sockets in device-plugins, creates kubelet.sock and PodResources
  void stop();
  /// The time from the creation of kubelet.sock to the first list after it; waits for that list.
  Millis list_after_start();
  /// Waits until the newest list satisfies `good`.
  bool wait_list(const std::function<bool(const std::map<std::string, bool>& healthy)>& good,
                 std::chrono::milliseconds limit = std::chrono::seconds(10));
  /// The health of each slot after every list, and after every end of the stream; oldest first.
  [[nodiscard]] std::vector<std::map<std::string, bool>> lists() const;
  [[nodiscard]] std::size_t list_bytes() const;
  /// Allocates for all containers of the pod, in order, as at admission. Then writes the checkpoint.
  void admit(Pod* pod);
  /// Allocates for one container of the pod, for scripts that interleave.
  void allocate(Pod* pod, Container* container);
  void remember(const Pod& pod);  // checkpoint and PodResources contain the pod from now on
  grpc::Status pre_start(const Container& container);
  void forget(const Pod& pod);  // frees its IDs
  bool write_checkpoint = true;
  bool serve_pod_resources = true;
  std::set<std::string> hides;  // UIDs of pods that are over: PodResources no longer lists them

  // DRA.
  struct Driver {
    pluginregistration::PluginInfo info;
    std::shared_ptr<grpc::Channel> channel;
    std::string registration_socket;
    std::uint64_t made = 0;  // creation time of the socket
  };
  /// Scans plugins_registry until `count` drivers answer; tells each that it is registered (or refused).
  std::vector<Driver> find_drivers(std::size_t count, bool accept = true);
  static dra::NodePrepareResourceResponse prepare(const Driver& driver, const std::string& namespace_name,
                                                  const std::string& name, const std::string& uid);
  static std::string unprepare(const Driver& driver, const std::string& uid);  // the error, or ""

  [[nodiscard]] static std::shared_ptr<grpc::Channel> dial(const std::string& socket);

 private:
  class Registration;
  class Resources;
  void listen(const std::string& endpoint);
  void save();

  std::string folder_;
  std::unique_ptr<Registration> registration_;
  std::unique_ptr<Resources> resources_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::Server> resources_server_;
  std::chrono::steady_clock::time_point born_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::shared_ptr<grpc::Channel> plugin_;
  std::unique_ptr<grpc::ClientContext> stream_context_;
  std::thread stream_;
  bool listed_ = false;
  std::chrono::steady_clock::time_point listed_at_;
  std::size_t bytes_ = 0;
  std::map<std::string, bool> devices_;
  std::vector<std::map<std::string, bool>> lists_;
  std::map<std::string, Pod> pods_;  // by UID
  std::set<std::string> used_;
  std::uint64_t random_ = 88172645463325252U;
};

}  // namespace carve::test
