// carve-in-slice DRIVER_FOLDER CUDA_LIBRARY NVML_LIBRARY [UUID MEMORY CORES] -- command…
// Runs the command with the libraries under the driver's names, in a slice with grants that do not change. MEMORY is in
// bytes, CORES in hundredths of a card; without UUID, MEMORY and CORES there is no slice. "-" in place of a library
// leaves that one out. For tests and for manual checks of the library; users run `carve run`.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "preload/testing/sandbox.h"
#include "preload/testing/slice_server.h"

using namespace carve::preload::testing;

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::size_t command = 0;
  while (command < words.size() && words[command] != "--") {
    words[command] = words[command] == "-" ? "" : words[command];
    ++command;
  }
  if (command < 3 || command + 1 >= words.size()) {
    std::fprintf(stderr, "usage: %s DRIVER_FOLDER CUDA_LIBRARY NVML_LIBRARY [UUID MEMORY CORES] -- command…\n",
                 argv[0]);
    return 2;
  }
  const std::string problem =
      enter_sandbox({words[1], words[2], words[0] + "/libcuda.so.1", words[0] + "/libnvidia-ml.so.1"});
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 2;
  }
  std::unique_ptr<SliceServer> slice;
  if (command >= 6) {
    CardSpec card;
    card.uuid = words[3];
    card.memory_limit = std::strtoull(words[4].c_str(), nullptr, 0);
    card.compute_limit = static_cast<std::uint32_t>(std::atoi(words[5].c_str()));
    slice = std::make_unique<SliceServer>("/run/carve/slices/test", std::vector<CardSpec>{card});
  }
  unsetenv("LD_LIBRARY_PATH");  // it would bypass the usual names
  const pid_t pid = fork();
  if (pid < 0) {
    std::perror("fork");
    return 2;
  }
  if (pid == 0) {
    execvp(argv[command + 2], argv + command + 2);
    std::perror(argv[command + 2]);
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
