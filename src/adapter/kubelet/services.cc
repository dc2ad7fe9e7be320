#include "adapter/kubelet/services.h"

#include <chrono>
#include <utility>
#include <vector>

namespace carve::kubelet {
namespace {

/// How long the kubelet uses a health report: three intervals of the reports.
constexpr std::int64_t kHealthTimeoutS = 30;
constexpr std::size_t kHealthMessageMax = 1024;

v1beta1::ListAndWatchResponse list_of(const SlotCalls& calls) {
  v1beta1::ListAndWatchResponse list;
  for (const auto& slot : calls.list()) {
    auto* device = list.add_devices();
    device->set_id(slot.id);
    device->set_health(slot.healthy ? "Healthy" : "Unhealthy");
  }
  return list;
}

v1alpha1::NodeWatchResourcesResponse health_of(const DraCalls& calls) {
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  v1alpha1::NodeWatchResourcesResponse all;
  for (const auto& view : calls.health()) {
    auto* device = all.add_devices();
    device->mutable_device()->set_pool_name(view.pool);
    device->mutable_device()->set_device_name(view.device);
    device->set_health(view.ok ? v1alpha1::HEALTHY : v1alpha1::UNHEALTHY);
    device->set_last_updated_time(now);
    device->set_health_check_timeout_seconds(kHealthTimeoutS);
    device->set_message(view.message.substr(0, kHealthMessageMax));
  }
  return all;
}

template <class Request>
std::vector<ClaimRef> claims_of(const Request& request) {
  std::vector<ClaimRef> claims;
  claims.reserve(static_cast<std::size_t>(request.claims_size()));
  for (const auto& claim : request.claims())
    claims.push_back({claim.namespace_(), claim.name(), claim.uid()});
  return claims;
}

void set_share(dra_v1::Device* to, const std::string& share) {
  if (!share.empty()) to->set_share_id(share);
}
void set_share(dra_v1beta1::Device*, const std::string&) {}

template <class Response>
void fill_prepared(const DraCalls::PerClaim<std::vector<ClaimDevice>>& answers, Response* response) {
  for (const auto& [uid, answer] : answers) {
    auto& entry = (*response->mutable_claims())[uid];
    if (!answer) {
      entry.set_error(answer.error().what);
      continue;
    }
    for (const auto& device : *answer) {
      auto* to = entry.add_devices();
      for (const auto& request : device.requests) to->add_request_names(request);
      to->set_pool_name(device.pool);
      to->set_device_name(device.device);
      for (const auto& cdi : device.cdi) to->add_cdi_device_ids(cdi);
      set_share(to, device.share);
    }
  }
}

template <class Response>
void fill_ended(const DraCalls::PerClaim<void>& answers, Response* response) {
  for (const auto& [uid, answer] : answers) {
    auto& entry = (*response->mutable_claims())[uid];
    if (!answer) entry.set_error(answer.error().what);
  }
}

const grpc::Status kStopping(grpc::StatusCode::UNAVAILABLE, "the agent is stopping");

template <class Job>
grpc::ServerUnaryReactor* on(Workers& workers, grpc::CallbackServerContext* context, Job job) {
  auto* reactor = context->DefaultReactor();
  if (!workers.post([reactor, job = std::move(job)] { reactor->Finish(job()); })) reactor->Finish(kStopping);
  return reactor;
}

template <class Request, class Response>
grpc::ServerUnaryReactor* prepare_on(DraCalls& calls, DraWorkers& workers,
                                     grpc::CallbackServerContext* context, const Request* request,
                                     Response* response) {
  return on(workers.prepare, context, [&calls, request, response] {
    fill_prepared(calls.prepare(claims_of(*request)), response);
    return grpc::Status::OK;
  });
}

template <class Request, class Response>
grpc::ServerUnaryReactor* unprepare_on(DraCalls& calls, DraWorkers& workers,
                                       grpc::CallbackServerContext* context, const Request* request,
                                       Response* response) {
  return on(workers.unprepare, context, [&calls, request, response] {
    fill_ended(calls.unprepare(claims_of(*request)), response);
    return grpc::Status::OK;
  });
}

}  // namespace

grpc::Status status_of(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code), error.what};  // the same numbers: base/result.h
}

// One write is in progress at a time. A change meanwhile causes one more write, with the state at that time. gRPC calls
// OnDone last and does not use the object afterwards.
template <class Message>
class LatestStreams<Message>::Stream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit Stream(LatestStreams& owner) : owner_(owner) {}
  void begin() { poke(); }
  void poke() {
    {
      const MutexLock lock(mutex_);
      if (finished_) return;
      if (writing_) {
        again_ = true;
        return;
      }
      writing_ = true;
    }
    write();
  }
  void end() {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(finished_, true)) return;
    }
    this->Finish(grpc::Status::OK);
  }
  void OnWriteDone(bool ok) override {
    bool next = false;
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      if (ok && !finished_ && again_) {
        again_ = false;
        writing_ = next = true;
      }
    }
    if (!ok) return end();
    if (next) write();
  }
  void OnCancel() override { end(); }
  void OnDone() override {
    {
      const MutexLock lock(owner_.mutex_);
      owner_.streams_.erase(this);
    }
    delete this;
  }

 private:
  void write() {
    Message made = owner_.make_();  // calls the application, so mutex_ is not held
    const MutexLock lock(mutex_);
    if (finished_) return;  // finished meanwhile: gRPC forbids a write after Finish()
    message_ = std::move(made);
    this->StartWrite(&message_);
  }
  LatestStreams& owner_;
  Mutex mutex_;
  Message message_ GUARDED_BY(mutex_);
  bool writing_ GUARDED_BY(mutex_) = false;
  bool again_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
};

template <class Message>
grpc::ServerWriteReactor<Message>* LatestStreams<Message>::open() {
  auto* stream = new Stream(*this);  // owned by gRPC until OnDone
  bool closed = false;
  {
    const MutexLock lock(mutex_);
    streams_.insert(stream);
    closed = closed_;
    // Under the lock, because OnDone, which deletes this stream, takes it too.
    closed ? stream->end() : stream->begin();
  }
  return stream;
}

template <class Message>
void LatestStreams<Message>::changed() {
  const MutexLock lock(mutex_);
  for (auto* stream : streams_) stream->poke();
}

template <class Message>
void LatestStreams<Message>::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  for (auto* stream : streams_) stream->end();
}

template <class Message>
bool LatestStreams<Message>::any() const {
  const MutexLock lock(mutex_);
  return !streams_.empty();
}

template class LatestStreams<v1beta1::ListAndWatchResponse>;
template class LatestStreams<v1alpha1::NodeWatchResourcesResponse>;

SlotService::SlotService(SlotCalls& calls, Workers& workers)
    : calls_(calls), workers_(workers), lists_([&calls] { return list_of(calls); }) {}

grpc::ServerUnaryReactor* SlotService::GetDevicePluginOptions(grpc::CallbackServerContext* context,
                                                              const v1beta1::Empty*,
                                                              v1beta1::DevicePluginOptions* response) {
  response->set_pre_start_required(true);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* SlotService::ListAndWatch(
    grpc::CallbackServerContext*, const v1beta1::Empty*) {
  return lists_.open();
}

grpc::ServerUnaryReactor* SlotService::Allocate(grpc::CallbackServerContext* context,
                                                const v1beta1::AllocateRequest* request,
                                                v1beta1::AllocateResponse* response) {
  return on(workers_, context, [this, request, response]() -> grpc::Status {
    for (const auto& container : request->container_requests()) {
      const auto name = calls_.allocate({container.devices_ids().begin(), container.devices_ids().end()});
      if (!name) return status_of(name.error());
      response->add_container_responses()->add_cdi_devices()->set_name(*name);
    }
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* SlotService::PreStartContainer(grpc::CallbackServerContext* context,
                                                         const v1beta1::PreStartContainerRequest* request,
                                                         v1beta1::PreStartContainerResponse*) {
  auto* reactor = context->DefaultReactor();
  calls_.before_start({request->devices_ids().begin(), request->devices_ids().end()},
                      [reactor](const Result<void>& answer) {
                        reactor->Finish(answer ? grpc::Status::OK : status_of(answer.error()));
                      });
  return reactor;
}

grpc::ServerUnaryReactor* DraV1::NodePrepareResources(grpc::CallbackServerContext* context,
                                                      const dra_v1::NodePrepareResourcesRequest* request,
                                                      dra_v1::NodePrepareResourcesResponse* response) {
  return prepare_on(calls_, workers_, context, request, response);
}

grpc::ServerUnaryReactor* DraV1::NodeUnprepareResources(grpc::CallbackServerContext* context,
                                                        const dra_v1::NodeUnprepareResourcesRequest* request,
                                                        dra_v1::NodeUnprepareResourcesResponse* response) {
  return unprepare_on(calls_, workers_, context, request, response);
}

grpc::ServerUnaryReactor* DraV1Beta1::NodePrepareResources(
    grpc::CallbackServerContext* context, const dra_v1beta1::NodePrepareResourcesRequest* request,
    dra_v1beta1::NodePrepareResourcesResponse* response) {
  return prepare_on(calls_, workers_, context, request, response);
}

grpc::ServerUnaryReactor* DraV1Beta1::NodeUnprepareResources(
    grpc::CallbackServerContext* context, const dra_v1beta1::NodeUnprepareResourcesRequest* request,
    dra_v1beta1::NodeUnprepareResourcesResponse* response) {
  return unprepare_on(calls_, workers_, context, request, response);
}

HealthService::HealthService(DraCalls& calls) : streams_([&calls] { return health_of(calls); }) {}

grpc::ServerWriteReactor<v1alpha1::NodeWatchResourcesResponse>* HealthService::NodeWatchResources(
    grpc::CallbackServerContext*, const v1alpha1::NodeWatchResourcesRequest*) {
  return streams_.open();
}

grpc::ServerUnaryReactor* RegistrationService::GetInfo(grpc::CallbackServerContext* context,
                                                       const pluginregistration::InfoRequest*,
                                                       pluginregistration::PluginInfo* response) {
  asked_();
  response->set_type("DRAPlugin");
  response->set_name(driver_);
  response->set_endpoint(endpoint_);
  for (const char* version : {"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"})
    response->add_supported_versions(version);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* RegistrationService::NotifyRegistrationStatus(
    grpc::CallbackServerContext* context, const pluginregistration::RegistrationStatus* request,
    pluginregistration::RegistrationStatusResponse*) {
  notice_(request->plugin_registered(), request->error());
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace carve::kubelet
