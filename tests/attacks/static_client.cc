// A client of the driver without libcuda: it is statically linked and talks to the kernel side directly. On a real card
// this is a program with its own ioctl calls; here it uses the simulated driver's protocol.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "sim/protocol/client.h"

int main(int argc, char** argv) {
  const std::uint64_t target = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2ULL << 30;
  const unsigned hold_ms = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1500;
  constexpr std::uint64_t kStep = 64ULL << 20;
  carve::sim::Connection driver;
  std::uint64_t got = 0;
  carve::sim::Status status = driver.open(carve::sim::ClientKind::kCuda);
  if (status == carve::sim::Status::kOk) status = driver.call(carve::sim::Op::kContextCreate, 0, 0, 0);
  while (status == carve::sim::Status::kOk && got < target) {
    status = driver.call(carve::sim::Op::kAlloc, 0, kStep, 0);
    if (status == carve::sim::Status::kOk) got += kStep;
  }
  std::printf("{\"attack\":\"static-client\",\"pid\":%d,\"got_bytes\":%llu,\"refused_with\":%d}\n", getpid(),
              static_cast<unsigned long long>(got), static_cast<int>(status));
  std::fflush(stdout);
  usleep(hold_ms * 1000);
  return 0;
}
