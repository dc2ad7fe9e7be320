#include "cmd/left_claims.h"

#include <chrono>
#include <memory>
#include <optional>

#include "base/thread.h"

namespace carve::cmd {
namespace {

constexpr std::chrono::milliseconds kEvery{500};
constexpr std::chrono::seconds kWithdrawAgain{5};

/// The driver's sockets while they are open.
struct Driver {
  std::unique_ptr<kubelet::KubeletServer> server;
  Thread serving;

  Result<void> open(DraCalls& dra, const kubelet::DraSocketOptions& sockets, Log& log) {
    kubelet::KubeletServer::Plugins plugins;
    plugins.dra = &dra;
    plugins.dra_sockets = sockets;
    CARVE_TRY(server, kubelet::KubeletServer::open(plugins, log));
    serving = Thread("left-claims-rpc", [this](const std::stop_token& stop) { server->run(stop); });
    return {};
  }
  ~Driver() {
    serving = Thread();  // the registration first: the kubelet sends no more calls
    server.reset();
  }
};

}  // namespace

void serve_left_claims(plugins::ClaimsLeft& left, DraCalls& dra, const kubelet::DraSocketOptions& sockets, Clock& clock,
                       Log& log, const std::stop_token& stop) {
  std::optional<Driver> driver;
  bool withdrawn = false;
  Clock::Time next_withdrawal{};
  do {
    const auto now = clock.now();
    if (!withdrawn && now >= next_withdrawal) {
      next_withdrawal = now + kWithdrawAgain;
      const auto done = left.withdraw_slices();
      withdrawn = done.has_value();
      if (done && *done != 0) log.info("ResourceSlices withdrawn: plugins does not contain dra", {{"slices", *done}});
    }
    const bool any = left.any(now);
    if (any && !driver) {
      driver.emplace();
      if (const auto opened = driver->open(dra, sockets, log); !opened) {
        log.error("the DRA driver cannot be opened for the claims that are left", {{"error", opened.error().what}});
        driver.reset();
      } else {
        log.info("plugins does not contain dra, and claims are left: the DRA driver stays registered until they end",
                 {{"prepared", left.prepared()}});
      }
    } else if (!any && driver) {
      driver.reset();
      log.info("the last claim has ended: the DRA driver is no longer registered");
    }
  } while (clock.sleep_for(kEvery, stop));
}

}  // namespace carve::cmd
