// A management library with two cards and a few processes, for the worker's tests: what it answers is told by
// the file FAKE_NVML_MODE names ("ok", "hang", "die", "nodriver", "lost").
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
bool mode_is(const char* word) {
  const char* path = std::getenv("FAKE_NVML_MODE");
  if (path == nullptr) return std::strcmp(word, "ok") == 0;
  std::FILE* file = std::fopen(path, "r");
  char text[32] = "ok";
  if (file != nullptr) {
    if (std::fgets(text, sizeof(text), file) == nullptr) text[0] = 0;
    std::fclose(file);
  }
  return std::strcmp(word, text) == 0;
}
std::uintptr_t index_of(void* device) { return reinterpret_cast<std::uintptr_t>(device) - 1; }
struct Process {
  unsigned pid;
  std::uint64_t used;
  unsigned gi, ci;
};
}  // namespace

extern "C" {
int nvmlInit_v2() { return mode_is("nodriver") ? 9 : 0; }
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "some error"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "999.10.01");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-fake-%u", static_cast<unsigned>(index_of(device)));
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "Fake T4");
  return 0;
}
int nvmlDeviceGetArchitecture(void* device, unsigned* number) {
  *number = index_of(device) == 0 ? 9 : 77;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetMinorNumber(void* device, unsigned* minor) {
  *minor = 7 - static_cast<unsigned>(index_of(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, std::uint64_t* info) {
  if (mode_is("hang")) ::pause();
  if (mode_is("die")) std::abort();
  if (mode_is("lost") && index_of(device) == 1) return 15;
  info[0] = 16ULL << 30U;
  info[1] = 15ULL << 30U;
  info[2] = 1ULL << 30U;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  *level = 50;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const unsigned have = index_of(device) == 0 ? 100 : 0;  // more than the first guess
  if (*count < have) {
    *count = have;
    return 7;
  }
  *count = have;
  for (unsigned i = 0; i < have; ++i) processes[i] = {1000 + i, 4096ULL * i, 0, 0};
  return 0;
}
}
