#include <csignal>
#include <string>
#include <thread>

#include "adapter/arbiter/arbiter_client.h"
#include "arbiter/arbiter.h"

// The arbiter of the next page ABI: `carve arbiter [--runtime-dir FOLDER]` without the command line's parser, and
// `carve probe arbiter`, the probe of its pod.
int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "probe") {
    return carve::arbiter::ArbiterClient(carve::arbiter::Options().runtime_folder + "/arbiter/control").list() ? 0 : 1;
  }
  sigset_t stop_signals;
  ::sigemptyset(&stop_signals);
  ::sigaddset(&stop_signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &stop_signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  carve::arbiter::Options options;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--runtime-dir") options.runtime_folder = argv[i + 1];
  }
  std::stop_source stop;
  std::thread([stop, stop_signals]() mutable {
    int signal = 0;
    ::sigwait(&stop_signals, &signal);
    stop.request_stop();
  }).detach();  // ends with the process
  carve::Log log;
  return carve::arbiter::run(options, log, stop.get_token()) ? 0 : 1;
}
