#include "adapter/kubelet/kubelet_server.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/server_posix.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "adapter/kubelet/folder_watch.h"
#include "adapter/kubelet/services.h"
#include "adapter/kubelet/unix_listener.h"
#include "adapter/process/text_file.h"
#include "base/bell.h"
#include "base/mutex.h"

namespace carve::kubelet {
namespace {

using Monotonic = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::seconds(2);  // the interval of a full check, regardless of inotify
constexpr auto kHealthEvery = std::chrono::seconds(10);
constexpr auto kRegisterDeadline =
    std::chrono::seconds(10);  // the kubelet's own deadline for its connection back to the plugin
constexpr auto kRetryFirst = std::chrono::milliseconds(20);
constexpr auto kRetryMost = std::chrono::seconds(1);
constexpr auto kDrain = std::chrono::seconds(2);

}  // namespace

struct KubeletServer::Impl {
  Impl(const Plugins& plugins_in, Log& log_in, Bell bell) : plugins(plugins_in), log(log_in), wake(std::move(bell)) {}

  void tend();
  void tend_dra();
  void tend_slots();
  void try_register(std::uint64_t kubelet);
  void poll_once(const std::stop_token& stop);
  void accept_from(const std::optional<UnixListener>& listener);
  void note_error(const std::string& text);
  [[nodiscard]] std::string plugin_path() const {
    return plugins.dra_sockets.plugins_folder + "/dra-" + plugins.dra_sockets.unique + ".sock";
  }
  [[nodiscard]] std::string registry_path() const {
    return plugins.dra_sockets.registry + "/" + plugins.dra_sockets.driver + "-" + plugins.dra_sockets.unique +
           "-reg.sock";
  }
  [[nodiscard]] std::string slot_path() const {
    return plugins.slot_socket.folder + "/" + plugins.slot_socket.socket;
  }
  [[nodiscard]] std::string kubelet_path() const { return plugins.slot_socket.folder + "/kubelet.sock"; }

  Plugins plugins;
  Log& log;
  Bell wake;
  Workers local{ThreadName("slot-allocate"), 1};      // for Allocate: the kubelet sends one call at a time
  Workers registrar{ThreadName("slot-register"), 1};  // during Register the kubelet connects back to this server
  DraWorkers dra_workers;
  std::unique_ptr<SlotService> slots;
  std::unique_ptr<DraV1> dra_v1;
  std::unique_ptr<DraV1Beta1> dra_v1beta1;
  std::unique_ptr<HealthService> health;
  std::unique_ptr<RegistrationService> registration;
  std::unique_ptr<grpc::Server> server;

  // Used by the thread of run() only.
  std::optional<FolderWatch> watch;
  std::optional<UnixListener> plugin_socket;
  std::optional<UnixListener> registry_socket;
  std::optional<UnixListener> slot_listener;
  Monotonic::time_point next_health{};
  Monotonic::time_point next_register{};
  Monotonic::time_point next_registry{};
  Monotonic::duration retry = kRetryFirst;

  std::atomic<bool> registering{false};
  // The kubelet refused the registration. Its plugin watcher retries only when the socket is re-created.
  std::atomic<bool> refused{false};
  std::atomic<std::uint64_t> registered_at{0};  // identity of the kubelet.sock at which the plugin is registered
  mutable Mutex mutex;
  Seen seen GUARDED_BY(mutex);
};

void KubeletServer::Impl::note_error(const std::string& text) {
  bool fresh = false;
  {
    const MutexLock lock(mutex);
    fresh = seen.error != text;
    seen.error = text;
  }
  if (fresh && !text.empty()) log.warn("a socket to the kubelet has an error", {{"error", text}});
}

void KubeletServer::Impl::tend_dra() {
  const auto now = Monotonic::now();
  if (!plugin_socket || !plugin_socket->in_place()) {
    auto made = UnixListener::open(plugin_path());
    if (!made) return note_error(made.error().what);
    plugin_socket.emplace(std::move(*made));
  }
  // After a refusal in its later steps the kubelet does not retry until the socket is re-created.
  if (refused.exchange(false) && registry_socket) {
    registry_socket.reset();
    next_registry = now + kRetryMost;
  }
  if (!registry_socket || !registry_socket->in_place()) {
    if (now < next_registry) return;
    auto made = UnixListener::open(registry_path());
    if (!made) return note_error(made.error().what);
    registry_socket.emplace(std::move(*made));
    log.info("DRA sockets created", {{"plugin", plugin_path()}, {"registry", registry_path()}});
  }
}

void KubeletServer::Impl::tend_slots() {
  if (!slot_listener || !slot_listener->in_place()) {
    // Another process that answers on the socket serves this node. Do not replace its socket: otherwise both processes
    // would replace each other's socket repeatedly.
    if (connect_unix(slot_path())) {
      return note_error("another plugin serves " + slot_path() + ": this agent does not replace its socket");
    }
    slot_listener.reset();
    auto made = UnixListener::open(slot_path());
    if (!made) return note_error(made.error().what);
    slot_listener.emplace(std::move(*made));
    registered_at = 0;
  }
  const auto kubelet = file_identity(kubelet_path());
  if (kubelet == 0 || registering) return;
  const auto now = Monotonic::now();
  if (kubelet != registered_at) {
    if (now >= next_register || registered_at != 0) try_register(kubelet);
  }
}

/// Registers on a separate thread, because the kubelet connects back to this server during the call.
void KubeletServer::Impl::try_register(std::uint64_t kubelet) {
  registering = true;
  registered_at = 0;
  next_register = Monotonic::now() + retry;
  retry = std::min<Monotonic::duration>(retry * 2, kRetryMost);
  registrar.post([this, kubelet] {
    std::string error;
    auto connected = connect_unix(kubelet_path());
    if (connected) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
      arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
      const auto channel =
          grpc::CreateCustomInsecureChannelFromFd("localhost", connected->release(), arguments);
      const auto stub = v1beta1::Registration::NewStub(channel);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kRegisterDeadline);
      v1beta1::RegisterRequest request;
      request.set_version("v1beta1");
      request.set_endpoint(plugins.slot_socket.socket);
      request.set_resource_name(plugins.slot_socket.resource);
      request.mutable_options()->set_pre_start_required(true);
      v1beta1::Empty nothing;
      const auto status = stub->Register(&context, request, &nothing);
      if (!status.ok()) error = "register " + plugins.slot_socket.resource + ": " + status.error_message();
    } else {
      error = connected.error().what;
    }
    if (error.empty()) {
      registered_at = kubelet;
      const MutexLock lock(mutex);
      ++seen.slot_registrations;
      seen.error.clear();
    } else {
      note_error(error);
    }
    registering = false;
    wake.ring();
  });
}

void KubeletServer::Impl::tend() {
  if (!watch) {
    std::vector<std::string> folders;
    if (plugins.dra) folders = {plugins.dra_sockets.registry, plugins.dra_sockets.plugins_folder};
    if (plugins.slots) folders.push_back(plugins.slot_socket.folder);
    auto opened = FolderWatch::open(folders);
    if (opened) {
      watch.emplace(std::move(*opened));
    } else {
      note_error(opened.error().what);
    }
  }
  if (plugins.dra) tend_dra();
  if (plugins.slots) tend_slots();
  const auto now = Monotonic::now();
  if (registered_at != 0) retry = kRetryFirst;
  if (health && now >= next_health) {
    next_health = now + kHealthEvery;
    health->streams().changed();
  }
}

void KubeletServer::Impl::accept_from(const std::optional<UnixListener>& listener) {
  while (listener) {
    Fd connection = listener->accept();
    if (!connection) return;
    grpc::AddInsecureChannelFromFd(server.get(), connection.release());
  }
}

void KubeletServer::Impl::poll_once(const std::stop_token& stop) {
  std::array<pollfd, 5> fds = {};
  nfds_t count = 0;
  const auto add = [&](int fd) { fds.at(count++) = {fd, POLLIN, 0}; };
  add(wake.fd());
  if (watch) add(watch->fd());
  for (const auto* listener : {&plugin_socket, &registry_socket, &slot_listener}) {
    if (*listener) add((*listener)->fd());
  }
  const bool soon = plugins.slots && registered_at == 0 && !registering && file_identity(kubelet_path()) != 0;
  const auto timeout = soon ? std::chrono::duration_cast<std::chrono::milliseconds>(retry)
                            : std::chrono::duration_cast<std::chrono::milliseconds>(kLook);
  if (stop.stop_requested()) return;
  ::poll(fds.data(), count, static_cast<int>(timeout.count()));
  wake.hush();
  if (watch && watch->drain()) watch.reset();
  accept_from(plugin_socket);
  accept_from(registry_socket);
  accept_from(slot_listener);
}

KubeletServer::KubeletServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KubeletServer::~KubeletServer() {
  if (impl_->slots) impl_->slots->lists().close();
  if (impl_->health) impl_->health->streams().close();
  impl_->server->Shutdown(std::chrono::system_clock::now() + kDrain);
  impl_->server->Wait();
  impl_->local.stop();
  impl_->registrar.stop();
  impl_->dra_workers.prepare.stop();
  impl_->dra_workers.unprepare.stop();
}

Result<std::unique_ptr<KubeletServer>> KubeletServer::open(const Plugins& plugins, Log& log) {
  CARVE_TRY(auto wake, Bell::make());
  auto impl = std::make_unique<Impl>(plugins, log, std::move(wake));
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  Impl& self = *impl;
  if (plugins.dra) {
    impl->dra_v1 = std::make_unique<DraV1>(*plugins.dra, impl->dra_workers);
    impl->dra_v1beta1 = std::make_unique<DraV1Beta1>(*plugins.dra, impl->dra_workers);
    impl->health = std::make_unique<HealthService>(*plugins.dra);
    impl->registration = std::make_unique<RegistrationService>(
        plugins.dra_sockets.driver, impl->plugin_path(),
        [&self] {
          const MutexLock lock(self.mutex);
          self.seen.dra_registered = false;
        },
        [&self](bool registered, const std::string& error) {
          {
            const MutexLock lock(self.mutex);
            self.seen.dra_registered = registered;
          }
          self.note_error(registered ? "" : "the kubelet refuses the registration: " + error);
          self.refused = !registered;
          self.wake.ring();
        });
    builder.RegisterService(impl->dra_v1.get());
    builder.RegisterService(impl->dra_v1beta1.get());
    builder.RegisterService(impl->health.get());
    builder.RegisterService(impl->registration.get());
    CARVE_TRY_VOID(process::make_folders(plugins.dra_sockets.plugins_folder, 0750));
    CARVE_TRY_VOID(process::make_folders(plugins.dra_sockets.registry, 0750));
    remove_dead_sockets(plugins.dra_sockets.registry, plugins.dra_sockets.driver + "-", "-reg.sock");
    remove_dead_sockets(plugins.dra_sockets.plugins_folder, "dra-", ".sock");
  }
  if (plugins.slots) {
    impl->slots = std::make_unique<SlotService>(*plugins.slots, impl->local);
    builder.RegisterService(impl->slots.get());
  }
  impl->server = builder.BuildAndStart();
  if (!impl->server) return fail(Code::kInternal, "the gRPC server cannot be started");
  return std::unique_ptr<KubeletServer>(new KubeletServer(std::move(impl)));
}

void KubeletServer::run(const std::stop_token& stop) {
  const std::stop_callback wake_up(stop, [this] { impl_->wake.ring(); });
  while (!stop.stop_requested()) {
    impl_->tend();
    impl_->poll_once(stop);
  }
  // The registration is removed first. The list of slots is not emptied: after the end of the stream the kubelet waits
  // five minutes for the plugin to return, whereas an empty list would remove the node's slots immediately.
  impl_->registry_socket.reset();
  impl_->slot_listener.reset();
  impl_->plugin_socket.reset();
}

void KubeletServer::changed() {
  if (impl_->slots) impl_->slots->lists().changed();
  if (impl_->health) impl_->health->streams().changed();
}

KubeletServer::Seen KubeletServer::seen() const {
  const MutexLock lock(impl_->mutex);
  Seen copy = impl_->seen;
  copy.slots_registered = impl_->registered_at != 0 && impl_->slots && impl_->slots->lists().any();
  return copy;
}

}  // namespace carve::kubelet
