#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <set>
#include <string>

#include "adapter/kubelet/workers.h"
#include "base/mutex.h"
#include "port/kubelet.h"
#include "proto/device_plugin_v1beta1.grpc.pb.h"
#include "proto/dra_health_v1alpha1.grpc.pb.h"
#include "proto/dra_v1.grpc.pb.h"
#include "proto/dra_v1beta1.grpc.pb.h"
#include "proto/plugin_registration_v1.grpc.pb.h"

// The generated services, each translated to calls of the port. Overrides keep gRPC's spelling.
namespace carve::kubelet {

[[nodiscard]] grpc::Status status_of(const Error& error);

/// Streams on which the latest state is sent after every change. Intermediate states may be skipped.
template <class Message>
class LatestStreams {
 public:
  explicit LatestStreams(std::function<Message()> make) : make_(std::move(make)) {}
  grpc::ServerWriteReactor<Message>* open();
  void changed();
  /// Ends all streams; later open() calls get an ended one.
  void close();
  [[nodiscard]] bool any() const;

 private:
  class Stream;
  std::function<Message()> make_;
  mutable Mutex mutex_;
  std::set<Stream*> streams_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

class SlotService final : public v1beta1::DevicePlugin::CallbackService {
 public:
  SlotService(SlotCalls& calls, Workers& workers);
  grpc::ServerUnaryReactor* GetDevicePluginOptions(grpc::CallbackServerContext* context,
                                                   const v1beta1::Empty* request,
                                                   v1beta1::DevicePluginOptions* response) override;
  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(
      grpc::CallbackServerContext* context, const v1beta1::Empty* request) override;
  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* response) override;
  grpc::ServerUnaryReactor* PreStartContainer(grpc::CallbackServerContext* context,
                                              const v1beta1::PreStartContainerRequest* request,
                                              v1beta1::PreStartContainerResponse* response) override;
  [[nodiscard]] LatestStreams<v1beta1::ListAndWatchResponse>& lists() { return lists_; }

 private:
  SlotCalls& calls_;
  Workers& workers_;
  LatestStreams<v1beta1::ListAndWatchResponse> lists_;
};

namespace dra_v1 = k8s::io::kubelet::pkg::apis::dra::v1;
namespace dra_v1beta1 = k8s::io::kubelet::pkg::apis::dra::v1beta1;

/// Prepare may wait for the API server. Unprepare never does, and has its own thread.
struct DraWorkers {
  Workers prepare{ThreadName("dra-prepare"), 4};
  Workers unprepare{ThreadName("dra-unprepare"), 1};
};

class DraV1 final : public dra_v1::DRAPlugin::CallbackService {
 public:
  DraV1(DraCalls& calls, DraWorkers& workers) : calls_(calls), workers_(workers) {}
  grpc::ServerUnaryReactor* NodePrepareResources(grpc::CallbackServerContext* context,
                                                 const dra_v1::NodePrepareResourcesRequest* request,
                                                 dra_v1::NodePrepareResourcesResponse* response) override;
  grpc::ServerUnaryReactor* NodeUnprepareResources(grpc::CallbackServerContext* context,
                                                   const dra_v1::NodeUnprepareResourcesRequest* request,
                                                   dra_v1::NodeUnprepareResourcesResponse* response) override;

 private:
  DraCalls& calls_;
  DraWorkers& workers_;
};

class DraV1Beta1 final : public dra_v1beta1::DRAPlugin::CallbackService {
 public:
  DraV1Beta1(DraCalls& calls, DraWorkers& workers) : calls_(calls), workers_(workers) {}
  grpc::ServerUnaryReactor* NodePrepareResources(
      grpc::CallbackServerContext* context, const dra_v1beta1::NodePrepareResourcesRequest* request,
      dra_v1beta1::NodePrepareResourcesResponse* response) override;
  grpc::ServerUnaryReactor* NodeUnprepareResources(
      grpc::CallbackServerContext* context, const dra_v1beta1::NodeUnprepareResourcesRequest* request,
      dra_v1beta1::NodeUnprepareResourcesResponse* response) override;

 private:
  DraCalls& calls_;
  DraWorkers& workers_;
};

class HealthService final : public v1alpha1::DRAResourceHealth::CallbackService {
 public:
  explicit HealthService(DraCalls& calls);
  grpc::ServerWriteReactor<v1alpha1::NodeWatchResourcesResponse>* NodeWatchResources(
      grpc::CallbackServerContext* context, const v1alpha1::NodeWatchResourcesRequest* request) override;
  [[nodiscard]] LatestStreams<v1alpha1::NodeWatchResourcesResponse>& streams() { return streams_; }

 private:
  LatestStreams<v1alpha1::NodeWatchResourcesResponse> streams_;
};

class RegistrationService final : public pluginregistration::Registration::CallbackService {
 public:
  using Notice = std::function<void(bool registered, const std::string& error)>;
  /// `asked` runs when a kubelet calls GetInfo: it has not registered the driver until it calls `notice`.
  RegistrationService(std::string driver, std::string endpoint, std::function<void()> asked, Notice notice)
      : driver_(std::move(driver)),
        endpoint_(std::move(endpoint)),
        asked_(std::move(asked)),
        notice_(std::move(notice)) {}
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const pluginregistration::InfoRequest* request,
                                    pluginregistration::PluginInfo* response) override;
  grpc::ServerUnaryReactor* NotifyRegistrationStatus(
      grpc::CallbackServerContext* context, const pluginregistration::RegistrationStatus* request,
      pluginregistration::RegistrationStatusResponse* response) override;

 private:
  std::string driver_;
  std::string endpoint_;
  std::function<void()> asked_;
  Notice notice_;
};

}  // namespace carve::kubelet
