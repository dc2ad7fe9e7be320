// A fake NVML with two cards and a few processes, for the worker's tests. The file named by FAKE_NVML_MODE contains its
// mode ("ok", "hang", "die", "nodriver", "lost", "xid <code>"). The file of the same name plus ".told" contains the
// last XID that the worker has sent.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
struct Mode {
  char text[32] = "ok";
};
Mode mode() {
  Mode now;
  const char* path = std::getenv("FAKE_NVML_MODE");
  std::FILE* file = path != nullptr ? std::fopen(path, "r") : nullptr;
  if (file != nullptr) {
    if (std::fgets(now.text, sizeof(now.text), file) == nullptr) now.text[0] = 0;
    std::fclose(file);
  }
  return now;
}
bool mode_is(const char* word) { return std::strcmp(word, mode().text) == 0; }
void say_told(const char* text) {
  char path[4096];
  std::snprintf(path, sizeof(path), "%s.told", std::getenv("FAKE_NVML_MODE"));
  if (std::FILE* file = std::fopen(path, "w")) {
    std::fputs(text, file);
    std::fclose(file);
  }
}
std::uintptr_t index_of(void* device) { return reinterpret_cast<std::uintptr_t>(device) - 1; }
struct Event {
  void* device;
  std::uint64_t type, data;
  unsigned gi, ci;
};
struct Field {
  unsigned id, scope;
  std::int64_t time, latency;
  unsigned type;
  int status;
  std::uint64_t value;
};
struct Gpm {
  unsigned version, count;
  int *first, *second;
  struct Metric {
    unsigned id;
    int status;
    double value;
    const char* info[3];
  } metrics[1];
};
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
int nvmlDeviceGetFieldValues(void* device, int, Field* fields) {
  fields[0].status = index_of(device) == 0 ? 0 : 3;
  fields[0].value = 1;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = 40;
  gpu_and_memory[1] = 7;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy_mj) {
  *energy_mj = 123'456'789'012;
  return index_of(device) == 0 ? 0 : 3;
}
int nvmlGpmQueryDeviceSupport(void* device, unsigned* version_and_answer) {
  if (version_and_answer[0] != 1) return 25;
  version_and_answer[1] = index_of(device) == 0 ? 1 : 0;
  return 0;
}
int nvmlGpmSampleAlloc(int** sample) {
  *sample = new int(0);
  return 0;
}
int nvmlGpmSampleFree(int* sample) {
  delete sample;
  return 0;
}
int nvmlGpmSampleGet(void* device, int* sample) {
  static int taken = 0;
  *sample = ++taken;
  return index_of(device) == 0 ? 0 : 3;
}
int nvmlGpmMetricsGet(Gpm* get) {
  if (get->version != 1 || *get->second != *get->first + 1) return 2;  // the two newest samples, in their order
  for (unsigned i = 0; i < get->count; ++i) {
    Gpm::Metric& metric = get->metrics[i];
    metric.status = metric.id == 10 ? 3 : 0;
    metric.value = metric.id == 5 ? 25 : metric.id == 2 ? 50 : 100.5;
  }
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = set;
  return 0;
}
int nvmlDeviceGetSupportedEventTypes(void* device, unsigned long long* types) {
  *types = index_of(device) == 0 ? 0x1f : 0x7;  // the second card reports no XIDs
  return 0;
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void*) {
  return index_of(device) == 0 && types == 8 ? 0 : 3;
}
// One XID for each change of the file to "xid <code>". The worker waits for the next when it has sent the last.
int nvmlEventSetWait_v2(void*, Event* event, unsigned timeout_ms) {
  static char last[32] = "";
  static bool gave = false;
  if (gave) say_told(last);
  gave = false;
  for (unsigned waited = 0; waited < timeout_ms; waited += 10) {
    const Mode now = mode();
    unsigned code = 0;
    const bool fresh = std::strcmp(now.text, last) != 0;
    std::memcpy(last, now.text, sizeof(last));
    if (fresh && std::sscanf(now.text, "xid %u", &code) == 1) {
      *event = {reinterpret_cast<void*>(std::uintptr_t{1}), 8, code, ~0U, ~0U};
      gave = true;
      return 0;
    }
    ::usleep(10'000);
  }
  return 10;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  *level = 50;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const unsigned have = index_of(device) == 0 ? 100 : 0;  // more than the worker's first buffer
  if (*count < have) {
    *count = have;
    return 7;
  }
  *count = have;
  for (unsigned i = 0; i < have; ++i) processes[i] = {1000 + i, 4096ULL * i, 0, 0};
  return 0;
}
}
