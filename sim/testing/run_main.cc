#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "sim/testing/instance.h"

// carve-sim-run h200x2 -- command …: runs the command on its own simulated driver.
namespace {

constexpr char kUsage[] =
    "usage: carve-sim-run <profile> [--] command [arguments]\n"
    "Runs the command in a private mount namespace with its own simulated cards and "
    "LD_LIBRARY_PATH set to\n"
    "the simulated driver's libraries; exits with the command's exit code (128 + signal if it was "
    "killed).\n"
    "Example: carve-sim-run h200x2 -- carve-sample-spin --seconds 1\n";

pid_t g_child = -1;
void forward(int signal) {
  if (g_child > 0) kill(g_child, signal);
}

}  // namespace

int main(int argc, char** argv) {
  int at = 2;
  if (argc > at && std::strcmp(argv[at], "--") == 0) ++at;
  if (argc <= at) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  carve::sim::Instance instance;
  if (const std::string error = instance.start(argv[1]); !error.empty()) {
    std::fprintf(stderr, "carve-sim-run: %s\n", error.c_str());
    return 2;
  }
  carve::sim::Instance::export_libraries();
  g_child = fork();
  if (g_child < 0) {
    std::perror("carve-sim-run: fork");
    instance.stop();
    return 2;
  }
  if (g_child == 0) {
    execvp(argv[at], argv + at);
    std::fprintf(stderr, "carve-sim-run: %s: %s\n", argv[at], std::strerror(errno));
    _exit(127);
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, forward);
  int status = 0;
  while (waitpid(g_child, &status, 0) < 0 && errno == EINTR) {
  }
  instance.stop();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
