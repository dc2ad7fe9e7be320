#include "adapter/kubelet/pod_resources.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <chrono>

#include "adapter/kubelet/unix_listener.h"
#include "adapter/process/text_file.h"
#include "base/mutex.h"
#include "codec/kubelet/checkpoint.h"
#include "proto/device_plugin_v1beta1.pb.h"
#include "proto/pod_resources_v1.grpc.pb.h"

namespace carve::kubelet {
namespace {

constexpr int kMaxAnswer = 16 << 20;  // the kubelet's own limit
constexpr auto kDeadline = std::chrono::seconds(2);
constexpr std::size_t kMaxCheckpoint = 64U << 20U;

}  // namespace

struct KubeletAsked::Impl {
  std::string socket;
  std::string checkpoint_path;
  Mutex mutex;
  std::uint64_t connected_to GUARDED_BY(mutex) = 0;
  std::shared_ptr<grpc::Channel> channel GUARDED_BY(mutex);

  Result<void> connect() REQUIRES(mutex) {
    const auto identity = file_identity(socket);
    if (channel && identity == connected_to) return {};
    CARVE_TRY(Fd fd, connect_unix(socket));
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetMaxReceiveMessageSize(kMaxAnswer);
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    channel = grpc::CreateCustomInsecureChannelFromFd("localhost", fd.release(), arguments);
    connected_to = identity;
    return {};
  }
};

KubeletAsked::KubeletAsked(const std::string& root, const std::string& device_plugins)
    : impl_(std::make_unique<Impl>()) {
  impl_->socket = root + "/pod-resources/kubelet.sock";
  impl_->checkpoint_path = device_plugins + "/kubelet_internal_checkpoint";
}

KubeletAsked::~KubeletAsked() = default;

Result<std::vector<SlotHolder>> KubeletAsked::holders(const std::string& resource) {
  const MutexLock lock(impl_->mutex);
  v1::ListPodResourcesResponse answer;
  grpc::Status status;
  // A connection that the kubelet has closed meanwhile fails at its first use: retry once with a new one.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool fresh = impl_->channel == nullptr;
    CARVE_TRY_VOID(impl_->connect());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    status = v1::PodResourcesLister::NewStub(impl_->channel)->List(&context, {}, &answer);
    if (status.ok()) break;
    impl_->channel.reset();
    if (fresh || status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
  }
  if (!status.ok()) {
    return fail(static_cast<Code>(status.error_code()), "PodResources: " + status.error_message());
  }
  std::vector<SlotHolder> holders;
  for (const auto& pod : answer.pod_resources()) {
    for (const auto& container : pod.containers()) {
      SlotHolder holder{pod.namespace_(), pod.name(), container.name(), {}};
      for (const auto& device : container.devices()) {
        if (device.resource_name() != resource) continue;
        holder.slots.insert(holder.slots.end(), device.device_ids().begin(), device.device_ids().end());
      }
      if (!holder.slots.empty()) holders.push_back(std::move(holder));
    }
  }
  return holders;
}

Result<std::map<std::string, std::size_t>> KubeletAsked::registered() {
  CARVE_TRY(const auto text, process::read_text(impl_->checkpoint_path, kMaxCheckpoint));
  return codec::parse_registered(text);
}

Result<std::vector<SlotEntry>> KubeletAsked::checkpoint(const std::string& resource) {
  CARVE_TRY(const auto text, process::read_text(impl_->checkpoint_path, kMaxCheckpoint));
  CARVE_TRY(const auto all, codec::parse_checkpoint(text));
  std::vector<SlotEntry> entries;
  for (const auto& entry : all) {
    if (entry.resource != resource) continue;
    SlotEntry found{entry.pod_uid, entry.container, entry.devices, {}};
    v1beta1::ContainerAllocateResponse answer;
    if (answer.ParseFromString(entry.answer)) {
      for (const auto& device : answer.cdi_devices()) found.cdi.push_back(device.name());
    }
    entries.push_back(std::move(found));
  }
  return entries;
}

}  // namespace carve::kubelet
