#include "cmd/keep_agent.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "adapter/kubelet/kubelet_server.h"
#include "app/keeper/keeper.h"
#include "base/bell.h"
#include "base/thread.h"

namespace carve::cmd {
namespace {

/// The device plugin as the kubelet sees it, from the first agent that serves until the end of the last one.
struct Served {
  std::unique_ptr<kubelet::KubeletServer> server;
  Thread serving;

  Result<void> open(const PluginOptions& options, SlotCalls& calls, Log& log) {
    kubelet::KubeletServer::Plugins plugins;
    plugins.slots = &calls;
    plugins.slot_socket = slot_socket(options);
    CARVE_TRY(server, kubelet::KubeletServer::open(plugins, log));
    serving = Thread("kubelet", [this](const std::stop_token& stop) { server->run(stop); });
    return {};
  }
  void close() {
    serving = Thread();  // the socket first: no new calls
    server.reset();
  }
};

/// Whether a signal arrived.
bool told(int fd) {
  std::array<char, 8 * sizeof(signalfd_siginfo)> words = {};
  return ::read(fd, words.data(), words.size()) > 0;
}

}  // namespace

Result<int> keep_agent(const PluginOptions& options, KeptAgent& agent, std::function<bool()> stays, int stop,
                       const Clock& clock, Log& log) {
  CARVE_TRY(const auto wake, Bell::make());
  Served served;
  keeper::KeptDevicePlugin plugin({clock,
                         [&served] {
                           if (served.server) served.server->changed();
                         },
                         [&wake] { wake.ring(); }});
  keeper::Keeper keeping(
      {agent, plugin, clock, log, [&] { return served.open(options, plugin, log); }, [&served] { served.close(); },
       [&served] { return served.server && served.server->seen().slots_registered; }, std::move(stays)});
  for (;;) {
    const auto wait = keeping.step();
    if (const auto code = keeping.over()) return *code;
    std::vector<pollfd> items = {{stop, POLLIN, 0}, {wake.fd(), POLLIN, 0}};
    for (const int fd : agent.handles()) items.push_back({fd, POLLIN, 0});
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
    ::poll(items.data(), items.size(), static_cast<int>(ms));
    wake.hush();
    if (told(stop)) keeping.stop();
  }
}

}  // namespace carve::cmd
