#include "cmd/take_over.h"

#include "app/plugins/device_names.h"

namespace carve::cmd {

Result<std::unique_ptr<TakeOver>> TakeOver::open(const PluginOptions& options, Log& log) {
  if (!options.dra) return nullptr;
  std::unique_ptr<TakeOver> made(new TakeOver());
  const std::string driver(plugins::kDriver);
  kubelet::KubeletServer::Plugins plugins;
  plugins.dra = &made->driver_;
  plugins.dra_sockets = {driver, options.kubelet_dir + "/plugins/" + driver, options.kubelet_dir + "/plugins_registry",
                       (options.unique.empty() ? "agent" : options.unique) + "-next"};
  CARVE_TRY(made->server_, kubelet::KubeletServer::open(plugins, log));
  made->serving_ =
      Thread("dra-early", [server = made->server_.get()](const std::stop_token& stop) { server->run(stop); });
  return made;
}

void TakeOver::close() {
  serving_ = Thread();  // the sockets first: no new calls
  server_.reset();
}

TakeOver::~TakeOver() {
  driver_.give_up();  // before the server: its destructor waits for the calls that wait in driver_
  close();
}

}  // namespace carve::cmd
