#include "adapter/kubelet/runtime_asked.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "adapter/kubelet/unix_listener.h"
#include "codec/kubelet/runtime_config.h"
#include "proto/cri_runtime_v1.grpc.pb.h"

namespace carve::kubelet {
namespace {

namespace cri = ::runtime::v1;

constexpr auto kCriDeadline = std::chrono::milliseconds(700);  // the agent waits for it once when it starts

Result<std::shared_ptr<grpc::Channel>> connect(const std::vector<std::string>& sockets) {
  Error last{Code::kNotFound, "none of the usual sockets of a container runtime exists"};
  for (const auto& socket : sockets) {
    auto fd = connect_unix(socket);
    if (fd) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
      arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
      return grpc::CreateCustomInsecureChannelFromFd("localhost", fd->release(), arguments);
    }
    if (fd.error().code != Code::kNotFound)
      last = {fd.error().code, socket + ": " + fd.error().what};
  }
  return tl::unexpected(last);
}

Result<void> checked(const grpc::Status& status) {
  if (status.ok()) return {};
  return fail(static_cast<Code>(status.error_code()),
              "container runtime: " + status.error_message());
}

std::chrono::system_clock::time_point deadline() {
  return std::chrono::system_clock::now() + kCriDeadline;
}

}  // namespace

const std::vector<std::string>& usual_runtime_sockets() {
  static const std::vector<std::string> kSockets = {
      "/run/containerd/containerd.sock", "/run/crio/crio.sock",
      "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
      "/var/snap/microk8s/common/run/containerd.sock"};
  return kSockets;
}

Result<RuntimeFacts> RuntimeAsked::ask() {
  CARVE_TRY(const auto channel, connect(sockets_));
  const auto stub = cri::RuntimeService::NewStub(channel);
  RuntimeFacts facts;
  {
    grpc::ClientContext context;
    context.set_deadline(deadline());
    cri::VersionResponse answer;
    CARVE_TRY_VOID(checked(stub->Version(&context, {}, &answer)));
    facts.name = answer.runtime_name();
    facts.version = answer.runtime_version();
  }
  grpc::ClientContext context;
  context.set_deadline(deadline());
  cri::StatusRequest question;
  question.set_verbose(true);
  cri::StatusResponse answer;
  // The version alone is useful too.
  if (!stub->Status(&context, question, &answer).ok()) return facts;
  const auto config = answer.info().find("config");
  if (config == answer.info().end()) return facts;
  auto parsed = codec::parse_runtime_config(config->second);
  facts.cdi = parsed.cdi;
  facts.cdi_dirs = std::move(parsed.cdi_dirs);
  return facts;
}

}  // namespace carve::kubelet
