/* What a container sees of the GPUs, as one JSON line: through the driver API and through NVML, both opened by the
 * names that every program uses. Written from the public API facts; shares no code with Carve or the simulator.
 *
 * "mapped" lists the files of the process that look like a driver: the code between the program and the driver.
 *
 * usage: ring-look [allocate BYTES] [try BYTES] [hold SECONDS]
 *   allocate  also calls cuMemAlloc for that many bytes on card 0; the result's number is in "allocated" (0: success)
 *   hold      prints the line, then sleeps and keeps the allocation
 *   try       while it holds: after SIGUSR1, within a second, an allocation of that many bytes; the result's number
 *             is printed on a separate line: {"tried": 2}
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*fn)();
static void* cuda;
static void* nvml;

static fn of(void* library, const char* name) {
  return library == NULL ? NULL : (fn)dlsym(library, name);
}

struct nvml_memory {
  unsigned long long total, free, used;
};

static void print_uuid(const unsigned char* b) {
  printf("GPU-");
  for (int i = 0; i < 16; ++i) printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
}

static void look_cuda(void) {
  int count = 0, result = -1;
  cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == NULL) {
    printf("\"cuda\": null");
    return;
  }
  if ((result = of(cuda, "cuInit")(0)) == 0) of(cuda, "cuDeviceGetCount")(&count);
  printf("\"cuda\": {\"init\": %d, \"cards\": [", result);
  for (int i = 0; i < count; ++i) {
    int device = 0;
    size_t total = 0;
    unsigned char uuid[16] = {0};
    fn get_uuid = of(cuda, "cuDeviceGetUuid_v2") ? of(cuda, "cuDeviceGetUuid_v2") : of(cuda, "cuDeviceGetUuid");
    of(cuda, "cuDeviceGet")(&device, i);
    of(cuda, "cuDeviceTotalMem_v2")(&total, device);
    get_uuid(uuid, device);
    printf("%s{\"uuid\": \"", i ? ", " : "");
    print_uuid(uuid);
    printf("\", \"memory\": %zu}", total);
  }
  printf("]}");
}

static void look_nvml(void) {
  unsigned count = 0;
  int result = -1;
  nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (nvml == NULL) {
    printf(", \"nvml\": null");
    return;
  }
  if ((result = of(nvml, "nvmlInit_v2")()) == 0) of(nvml, "nvmlDeviceGetCount_v2")(&count);
  printf(", \"nvml\": {\"init\": %d, \"cards\": [", result);
  for (unsigned i = 0; i < count; ++i) {
    void* device = NULL;
    char uuid[96] = "";
    struct nvml_memory memory = {0, 0, 0};
    of(nvml, "nvmlDeviceGetHandleByIndex_v2")(i, &device);
    of(nvml, "nvmlDeviceGetUUID")(device, uuid, (unsigned)sizeof uuid);
    of(nvml, "nvmlDeviceGetMemoryInfo")(device, &memory);
    printf("%s{\"uuid\": \"%s\", \"memory\": %llu}", i ? ", " : "", uuid, memory.total);
  }
  printf("]}");
}

static void look_mapped(void) {
  char line[4096], last[4096] = "";
  int first = 1;
  FILE* maps = fopen("/proc/self/maps", "r");
  printf(", \"mapped\": [");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    char* path = strchr(line, '/');
    if (path == NULL || (strstr(path, "cuda") == NULL && strstr(path, "nvidia") == NULL)) continue;
    path[strcspn(path, "\n")] = '\0';
    if (strcmp(path, last) == 0) continue;
    strcpy(last, path);
    printf("%s\"%s\"", first ? "" : ", ", path);
    first = 0;
  }
  printf("]");
  if (maps != NULL) fclose(maps);
}

static int allocate(size_t bytes) {
  void* context = NULL;
  unsigned long long address = 0;
  int device = 0, result;
  if (cuda == NULL || of(cuda, "cuDeviceGet")(&device, 0) != 0) return -1;
  if ((result = of(cuda, "cuDevicePrimaryCtxRetain")(&context, device)) != 0) return result;
  of(cuda, "cuCtxSetCurrent")(context);
  return of(cuda, "cuMemAlloc_v2")(&address, bytes);
}

/* Process 1 of a container gets no default action of SIGTERM, so it needs a handler. */
static void end(int signal) {
  (void)signal;
  _exit(0);
}

static volatile sig_atomic_t asked;

static void ask(int signal) {
  (void)signal;
  asked = 1;
}

static void hold(unsigned seconds, size_t bytes) {
  if (bytes == 0) sleep(seconds);
  for (; bytes != 0 && seconds > 0; --seconds) {
    if (asked) {
      asked = 0;
      printf("{\"tried\": %d}\n", allocate(bytes));
      fflush(stdout);
    }
    sleep(1);
  }
}

int main(int argc, char** argv) {
  size_t bytes = 0;
  signal(SIGTERM, end);
  printf("{");
  look_cuda();
  look_nvml();
  look_mapped();
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "allocate") == 0) printf(", \"allocated\": %d", allocate(strtoull(argv[i + 1], NULL, 10)));
    if (strcmp(argv[i], "try") == 0) bytes = strtoull(argv[i + 1], NULL, 10);
    if (bytes != 0) signal(SIGUSR1, ask);
  }
  printf("}\n");
  fflush(stdout);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "hold") == 0) hold((unsigned)atoi(argv[i + 1]), bytes);
  }
  return 0;
}
