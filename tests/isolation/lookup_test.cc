// Every name of the driver is available through the library, and every look-up returns what the driver returns: the
// driver's own address, or the hook for exactly that address.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "preload/driver_abi.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

class Lookup : public SliceTest {};

struct Symbol {
  std::string name, base;
  int version = 0;  // of the driver interface, from the vendor's header
};

std::vector<Symbol> symbols_of(const char* table) {
  std::vector<Symbol> out;
  std::ifstream file(std::string(CARVE_SOURCE) + "/sim/export/" + table);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Symbol symbol;
    // symbol, base name, version, …; the table of NVML has other columns after the first.
    if (line.empty() || line[0] == '#' || !(words >> symbol.name) || symbol.name == "symbol") {
      continue;
    }
    words >> symbol.base >> symbol.version;
    out.push_back(symbol);
  }
  return out;
}

TEST_F(Lookup, EveryExportOfTheDriverIsFoundUnderEveryName) {
  start_slice(1024 * kMiB);
  for (const char* half : {"cuda", "nvml"}) {
    const std::vector<Symbol> symbols = symbols_of((half + std::string("_symbols.tsv")).c_str());
    ASSERT_GT(symbols.size(), 400U);
    const std::string stem = half == std::string("cuda") ? "libcuda.so" : "libnvidia-ml.so";
    for (const std::string& name : {stem, stem + ".1"}) {
      void* library = dlopen(name.c_str(), RTLD_NOW);
      ASSERT_NE(library, nullptr) << dlerror();
      for (const Symbol& symbol : symbols) {
        EXPECT_NE(dlsym(library, symbol.name.c_str()), nullptr) << symbol.name << " by " << name;
      }
    }
  }
}

TEST_F(Lookup, GetProcAddressReturnsWhatTheDriverReturns) {
  start_slice(1024 * kMiB);
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* own = dlopen("/usr/lib/carve/driver/libcuda.so.1", RTLD_NOW);
  ASSERT_TRUE(library != nullptr && own != nullptr);
  // Maps each driver address to its hook, by the names that both export.
  std::map<void*, void*> hooks;
  std::set<std::string> bases;
  // Every version in the headers, the version before it (for which the older variant must be returned), and invalid
  // ones.
  std::set<int> versions = {-1, 0, 999999};
  for (const Symbol& symbol : symbols_of("cuda_symbols.tsv")) {
    void* through = dlsym(library, symbol.name.c_str());
    void* direct = dlsym(own, symbol.name.c_str());
    if (through != direct) {
      hooks[direct] = through;
    }
    bases.insert(symbol.base);
    bases.insert(symbol.name);
    versions.insert({symbol.version, symbol.version - 1});
  }
  bases.insert("");
  bases.insert("cuNoSuchThing");
  ASSERT_GT(hooks.size(), 150U);
  ASSERT_GT(versions.size(), 70U);  // about forty versions, and values between them
  using GetProc = CUresult(const char*, void**, int, std::uint64_t, int*);
  using GetProcFirst = CUresult(const char*, void**, int, std::uint64_t);
  auto* through = reinterpret_cast<GetProc*>(dlsym(library, "cuGetProcAddress_v2"));
  auto* direct = reinterpret_cast<GetProc*>(dlsym(own, "cuGetProcAddress_v2"));
  auto* through_first = reinterpret_cast<GetProcFirst*>(dlsym(library, "cuGetProcAddress"));
  auto* direct_first = reinterpret_cast<GetProcFirst*>(dlsym(own, "cuGetProcAddress"));
  std::uint64_t queries = 0;
  std::uint64_t hooked = 0;
  std::uint64_t wrong = 0;
  for (const std::string& name : bases) {
    for (const int version : versions) {
      for (const std::uint64_t flags : {0U, 1U, 2U, 3U, 4U}) {
        void* a = reinterpret_cast<void*>(0x77);
        void* b = a;
        int status_a = -7;
        int status_b = -7;
        const CUresult result_a = direct(name.c_str(), &a, version, flags, &status_a);
        const CUresult result_b = through(name.c_str(), &b, version, flags, &status_b);
        const auto hook = hooks.find(a);
        void* wanted = hook == hooks.end() ? a : hook->second;
        void* c = reinterpret_cast<void*>(0x77);
        void* d = c;
        const CUresult result_c = direct_first(name.c_str(), &c, version, flags);
        const CUresult result_d = through_first(name.c_str(), &d, version, flags);
        const auto hook_first = hooks.find(c);
        wrong += result_a != result_b || status_a != status_b || b != wanted || result_c != result_d ||
                         d != (hook_first == hooks.end() ? c : hook_first->second)
                     ? 1
                     : 0;
        hooked += wanted != a ? 1 : 0;
        ++queries;
      }
    }
  }
  std::printf("%llu queries in both forms, %llu returned a hook, %llu wrong\n",
              static_cast<unsigned long long>(queries), static_cast<unsigned long long>(hooked),
              static_cast<unsigned long long>(wrong));
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(hooked, 1000U);
}

/// NVML inside a slice: its own memory and processes, nothing of the neighbour.
TEST_F(Lookup, NvmlShowsTheSliceAlone) {
  start_slice(1024 * kMiB);
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
  };
  // A neighbour outside the slice holds memory on the same card, through the driver's own file.
  const auto hold = [](const char* file, std::size_t bytes, int ready, int go) {
    void* library = dlopen(file, RTLD_NOW);
    void* context = nullptr;
    CUdeviceptr address = 0;
    char byte = 'r';
    const bool held =
        library != nullptr && reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"))(0) == 0 &&
        reinterpret_cast<int (*)(void**, int)>(dlsym(library, "cuDevicePrimaryCtxRetain"))(&context, 0) == 0 &&
        reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxSetCurrent"))(context) == 0 &&
        reinterpret_cast<int (*)(CUdeviceptr*, std::size_t)>(dlsym(library, "cuMemAlloc_v2"))(&address, bytes) == 0;
    byte = held ? 'r' : 'x';
    return write(ready, &byte, 1) == 1 && read(go, &byte, 1) == 0 ? 0 : 1;
  };
  int ready[2];
  int go[2];
  ASSERT_EQ(pipe(ready) + pipe(go), 0);
  const pid_t neighbour = fork_quietly();
  if (neighbour == 0) {
    close(go[1]);
    _exit(hold("/usr/lib/carve/driver/libcuda.so.1", 3000 * kMiB, ready[1], go[0]));
  }
  const pid_t own = fork_quietly();
  if (own == 0) {
    close(go[1]);
    _exit(hold("libcuda.so.1", 200 * kMiB, ready[1], go[0]));
  }
  char bytes[2] = {};
  ASSERT_EQ(read(ready[0], bytes, 1) + read(ready[0], bytes + 1, 1), 2);
  ASSERT_TRUE(bytes[0] == 'r' && bytes[1] == 'r');
  EXPECT_EQ(in_child([&] {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void* device = nullptr;
    if (reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"))() != 0) return 1;
    if (reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device) != 0)
      return 2;
    Memory memory{};
    if (reinterpret_cast<int (*)(void*, Memory*)>(dlsym(library, "nvmlDeviceGetMemoryInfo"))(device, &memory) != 0)
      return 3;
    if (memory.total != 1024 * kMiB || memory.used != 305 * kMiB || memory.free != 719 * kMiB) return 4;
    unsigned count = 16;
    Process processes[16];
    if (reinterpret_cast<int (*)(void*, unsigned*, Process*)>(
            dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"))(device, &count, processes) != 0)
      return 5;
    if (count != 1 || processes[0].pid != static_cast<unsigned>(own)) return 6;
    count = 0;  // queries the number: one process does not fit into an empty list
    return reinterpret_cast<int (*)(void*, unsigned*, Process*)>(
               dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"))(device, &count, nullptr) == 7 &&
                   count == 1
               ? 0
               : 7;
  }), 0);
  // nvidia-smi's own way to the list: a table of unnamed functions (preload/nvml.cc names the source).
  struct Named {
    unsigned pid;
    std::uint64_t used;
    unsigned instances[2];
    std::uint64_t reserved;
    char name[4096];
  };
  EXPECT_EQ(in_child([&] {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void* device = nullptr;
    reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"))();
    reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    auto* table_of = reinterpret_cast<int (*)(const std::uintptr_t**, const void*)>(
        dlsym(library, "nvmlInternalGetExportTable"));
    const unsigned char tools[16] = {0xC4, 0xFE, 0x3E, 0x6C, 0xC9, 0x8F, 0x6C, 0x4E,
                                     0xA3, 0x27, 0xEE, 0x69, 0x6E, 0x12, 0xF7, 0xC4};
    const unsigned char unknown[16] = {1};
    const std::uintptr_t* table = nullptr;
    const std::uintptr_t* again = nullptr;
    if (table_of(&table, unknown) == 0) return 1;
    if (table_of(&table, tools) != 0 || table[0] / sizeof table[0] <= 215) return 2;
    if (table_of(&again, tools) != 0 || again != table) return 3;
    static Named processes[500];
    for (const int list : {213, 214, 215}) {
      unsigned count = 500;
      if (reinterpret_cast<int (*)(void*, unsigned*, Named*)>(table[list])(device, &count, processes) != 0) return 4;
      if (count != (list == 213 ? 1U : 0U)) return 5;
    }
    if (processes[0].pid != static_cast<unsigned>(own) || processes[0].name[0] == '\0') return 6;
    return processes[0].used >= 200 * kMiB ? 0 : 7;
  }), 0);
  close(go[1]);
  waitpid(own, nullptr, 0);
  waitpid(neighbour, nullptr, 0);
}

}  // namespace
}  // namespace carve::isolation
