#include "tests/integration/kubelet/scripted_kubelet.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace carve::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string base64(const std::string& bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kLetters[group >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

std::uint64_t made_at(const struct stat& file) {
  return static_cast<std::uint64_t>(file.st_ctim.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(file.st_ctim.tv_nsec);
}

}  // namespace

class ScriptedKubelet::Registration final : public v1beta1::Registration::Service {
 public:
  explicit Registration(ScriptedKubelet& owner) : owner_(owner) {}
  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    if (request->version() != "v1beta1") return {grpc::StatusCode::INVALID_ARGUMENT, "version"};
    if (request->resource_name() != "elasticgpu.io/slot")
      return {grpc::StatusCode::INVALID_ARGUMENT, "resource"};
    // Like the kubelet: dial back and query the options before this call returns.
    const auto channel = dial(owner_.device_plugins() + "/" + request->endpoint());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1beta1::DevicePluginOptions options;
    const auto status =
        v1beta1::DevicePlugin::NewStub(channel)->GetDevicePluginOptions(&context, {}, &options);
    if (!status.ok()) return status;
    if (!options.pre_start_required())
      return {grpc::StatusCode::INVALID_ARGUMENT, "PreStartContainer is not requested"};
    owner_.listen(request->endpoint());
    return grpc::Status::OK;
  }

 private:
  ScriptedKubelet& owner_;
};

class ScriptedKubelet::Resources final : public v1::PodResourcesLister::Service {
 public:
  explicit Resources(ScriptedKubelet& owner) : owner_(owner) {}
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* response) override {
    const std::lock_guard lock(owner_.mutex_);
    if (!owner_.serve_pod_resources) return {grpc::StatusCode::UNAVAILABLE, "as the test configures"};
    for (const auto& [uid, pod] : owner_.pods_) {
      if (owner_.hides.contains(uid)) continue;
      auto* to = response->add_pod_resources();
      to->set_name(pod.name);
      to->set_namespace_(pod.namespace_name);
      for (const auto& container : pod.containers) {
        if (container.init) continue;
        auto* one = to->add_containers();
        one->set_name(container.name);
        for (const auto& id : container.ids) {  // one entry per ID, like the real kubelet
          auto* device = one->add_devices();
          device->set_resource_name("elasticgpu.io/slot");
          device->add_device_ids(id);
        }
      }
    }
    return grpc::Status::OK;
  }

 private:
  ScriptedKubelet& owner_;
};

ScriptedKubelet::ScriptedKubelet(std::string folder) : folder_(std::move(folder)) {
  for (const char* name : {"/device-plugins", "/pod-resources", "/plugins", "/plugins_registry"})
    fs::create_directories(folder_ + name);
}

ScriptedKubelet::~ScriptedKubelet() { stop(); }

std::shared_ptr<grpc::Channel> ScriptedKubelet::dial(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

void ScriptedKubelet::start() {
  for (const auto& entry : fs::directory_iterator(device_plugins())) {
    if (entry.is_socket()) fs::remove(entry.path());
  }
  {
    const std::lock_guard lock(mutex_);
    listed_ = stopping_ = false;
    devices_.clear();
  }
  resources_ = std::make_unique<Resources>(*this);
  grpc::ServerBuilder resources;
  resources.AddListeningPort("unix:" + folder_ + "/pod-resources/kubelet.sock",
                             grpc::InsecureServerCredentials());
  resources.RegisterService(resources_.get());
  resources_server_ = resources.BuildAndStart();
  registration_ = std::make_unique<Registration>(*this);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + device_plugins() + "/kubelet.sock", grpc::InsecureServerCredentials());
  builder.RegisterService(registration_.get());
  born_ = Clock::now();
  server_ = builder.BuildAndStart();
}

void ScriptedKubelet::stop() {
  std::thread stream;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (stream_context_) stream_context_->TryCancel();
    stream.swap(stream_);
  }
  if (stream.joinable()) stream.join();
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
  if (resources_server_) resources_server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
  resources_server_.reset();
}

void ScriptedKubelet::listen(const std::string& endpoint) {
  std::thread old;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (stream_context_) stream_context_->TryCancel();
    old.swap(stream_);
  }
  if (old.joinable()) old.join();
  const std::lock_guard lock(mutex_);
  plugin_ = dial(device_plugins() + "/" + endpoint);
  stream_context_ = std::make_unique<grpc::ClientContext>();
  stream_ = std::thread([this, context = stream_context_.get(), plugin = plugin_] {
    auto reader = v1beta1::DevicePlugin::NewStub(plugin)->ListAndWatch(context, {});
    for (v1beta1::ListAndWatchResponse list; reader->Read(&list);) {
      const std::lock_guard inner(mutex_);
      if (!listed_) listed_at_ = Clock::now();
      listed_ = true;
      bytes_ = list.ByteSizeLong();
      devices_.clear();
      for (const auto& device : list.devices()) devices_[device.id()] = device.health() == "Healthy";
      lists_.push_back(devices_);
      changed_.notify_all();
    }
    reader->Finish();
    const std::lock_guard inner(mutex_);
    for (auto& [id, healthy] : devices_) healthy = false;  // the kubelet's rule when a stream ends
    lists_.push_back(devices_);
    changed_.notify_all();
  });
}

ScriptedKubelet::Millis ScriptedKubelet::list_after_start() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, std::chrono::seconds(10), [this] { return listed_; }))
    throw std::runtime_error("no list within 10 s");
  return listed_at_ - born_;
}

bool ScriptedKubelet::wait_list(const std::function<bool(const std::map<std::string, bool>&)>& good,
                                std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return good(devices_); });
}

std::vector<std::map<std::string, bool>> ScriptedKubelet::lists() const {
  const std::lock_guard lock(mutex_);
  return lists_;
}

std::size_t ScriptedKubelet::list_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void ScriptedKubelet::allocate(Pod* pod, Container* container) {
  {
    const std::lock_guard lock(mutex_);
    // IDs held by ordinary init containers are reused first.
    for (const auto& other : pod->containers) {
      if (!other.init || container->init) continue;
      for (const auto& id : other.ids) {
        const bool taken =
            std::any_of(pod->containers.begin(), pod->containers.end(), [&](const Container& one) {
              return !one.init && std::find(one.ids.begin(), one.ids.end(), id) != one.ids.end();
            });
        if (!taken && container->ids.size() < container->slots) container->ids.push_back(id);
      }
    }
    std::vector<std::string> free;
    for (const auto& [id, healthy] : devices_) {
      if (healthy && !used_.contains(id)) free.push_back(id);
    }
    while (container->ids.size() < container->slots) {
      if (free.empty()) throw std::runtime_error("no free slot");
      random_ ^= random_ << 13U, random_ ^= random_ >> 7U, random_ ^= random_ << 17U;
      const auto at = free.begin() + static_cast<std::ptrdiff_t>(random_ % free.size());
      container->ids.push_back(*at);
      used_.insert(*at);
      free.erase(at);
    }
  }
  v1beta1::AllocateRequest request;
  for (const auto& id : container->ids) request.add_container_requests()->add_devices_ids(id);
  // One container request with all IDs: the loop above created one per ID.
  request.clear_container_requests();
  auto* one = request.add_container_requests();
  for (const auto& id : container->ids) one->add_devices_ids(id);
  grpc::ClientContext context;
  v1beta1::AllocateResponse response;
  const auto status = v1beta1::DevicePlugin::NewStub(plugin_)->Allocate(&context, request, &response);
  if (!status.ok()) throw std::runtime_error("Allocate: " + status.error_message());
  const auto& answer = response.container_responses(0);
  if (answer.cdi_devices_size() != 1 ||
      answer.mounts_size() + answer.devices_size() + answer.envs_size() != 0)
    throw std::runtime_error("Allocate answered more or less than one CDI name");
  container->cdi = answer.cdi_devices(0).name();
}

void ScriptedKubelet::remember(const Pod& pod) {
  const std::lock_guard lock(mutex_);
  pods_[pod.uid] = pod;
  save();
}

void ScriptedKubelet::forget(const Pod& pod) {
  const std::lock_guard lock(mutex_);
  pods_.erase(pod.uid);
  for (const auto& container : pod.containers) {
    for (const auto& id : container.ids) used_.erase(id);
  }
  save();
}

void ScriptedKubelet::save() {
  if (!write_checkpoint) return;
  std::string entries;
  for (const auto& [uid, pod] : pods_) {
    for (const auto& container : pod.containers) {
      if (container.ids.empty()) continue;
      v1beta1::ContainerAllocateResponse answer;
      answer.add_cdi_devices()->set_name(container.cdi);
      entries += fmt::format(R"({}{{"PodUID":"{}","ContainerName":"{}","ResourceName":"elasticgpu.io/slot",)"
                             R"("DeviceIDs":{{"-1":["{}"]}},"AllocResp":"{}"}})",
                             entries.empty() ? "" : ",", uid, container.name,
                             fmt::join(container.ids, "\",\""), base64(answer.SerializeAsString()));
    }
  }
  const auto path = device_plugins() + "/kubelet_internal_checkpoint";
  std::ofstream(path + ".tmp") << R"({"Data":{"PodDeviceEntries":[)" << entries
                               << R"(],"RegisteredDevices":{}},"Checksum":1})";
  std::rename((path + ".tmp").c_str(), path.c_str());
}

void ScriptedKubelet::admit(Pod* pod) {
  for (auto& container : pod->containers) allocate(pod, &container);
  remember(*pod);
}

grpc::Status ScriptedKubelet::pre_start(const Container& container) {
  v1beta1::PreStartContainerRequest request;
  for (const auto& id : container.ids) request.add_devices_ids(id);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  v1beta1::PreStartContainerResponse response;
  return v1beta1::DevicePlugin::NewStub(plugin_)->PreStartContainer(&context, request, &response);
}

std::vector<ScriptedKubelet::Driver> ScriptedKubelet::find_drivers(std::size_t count, bool accept) {
  std::vector<Driver> drivers;
  const auto limit = Clock::now() + std::chrono::seconds(10);
  while (drivers.size() < count && Clock::now() < limit) {
    drivers.clear();
    for (const auto& entry : fs::directory_iterator(folder_ + "/plugins_registry")) {
      // Like the plugin watcher: hidden names are ignored, any other name must answer.
      if (entry.path().filename().string().starts_with(".") || !entry.is_socket()) continue;
      Driver driver;
      driver.registration_socket = entry.path();
      struct stat status_of_file = {};
      if (::stat(entry.path().c_str(), &status_of_file) != 0) continue;
      driver.made = made_at(status_of_file);
      const auto channel = dial(entry.path());
      const auto stub = pluginregistration::Registration::NewStub(channel);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
      if (!stub->GetInfo(&context, {}, &driver.info).ok()) continue;
      grpc::ClientContext notify;
      pluginregistration::RegistrationStatus status;
      status.set_plugin_registered(accept);
      if (!accept) status.set_error("refused by the test");
      pluginregistration::RegistrationStatusResponse nothing;
      stub->NotifyRegistrationStatus(&notify, status, &nothing);
      driver.channel = dial(driver.info.endpoint());
      drivers.push_back(std::move(driver));
    }
    if (drivers.size() < count) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return drivers;
}

dra::NodePrepareResourceResponse ScriptedKubelet::prepare(const Driver& driver, const std::string& namespace_name,
                                                          const std::string& name, const std::string& uid) {
  dra::NodePrepareResourcesRequest request;
  auto* claim = request.add_claims();
  claim->set_namespace_(namespace_name);
  claim->set_name(name);
  claim->set_uid(uid);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(45));
  dra::NodePrepareResourcesResponse response;
  const auto status =
      dra::DRAPlugin::NewStub(driver.channel)->NodePrepareResources(&context, request, &response);
  if (!status.ok()) throw std::runtime_error("NodePrepareResources: " + status.error_message());
  return response.claims().at(uid);
}

std::string ScriptedKubelet::unprepare(const Driver& driver, const std::string& uid) {
  dra::NodeUnprepareResourcesRequest request;
  request.add_claims()->set_uid(uid);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(45));
  dra::NodeUnprepareResourcesResponse response;
  const auto status =
      dra::DRAPlugin::NewStub(driver.channel)->NodeUnprepareResources(&context, request, &response);
  if (!status.ok()) return "rpc: " + status.error_message();
  return response.claims().at(uid).error();
}

}  // namespace carve::test
