// Executes the steps of a random program on a driver.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "preload/driver_abi.h"
#include "tests/isolation/programs.h"

namespace carve::isolation {

namespace {

enum class State : std::uint8_t { kNone, kLive, kRefused };

struct Object {
  State state = State::kNone;
  Verb made_by = Verb::kInfo;
  unsigned notice = 0;   // 1 + its place on the board for other processes
  unsigned context = 0;  // 1 + the slot of the context with which it is freed
  unsigned users = 0;
  std::uint64_t handle = 0;
  std::uint64_t size = 0;
  std::uint64_t exec = 0;
  std::array<CUdeviceptr, 4> nodes = {};
  unsigned node_count = 0;
};

template <class To>
To as(std::uint64_t handle) {
  return reinterpret_cast<To>(handle);
}

class Process {
 public:
  Process(const Program& program, unsigned number, Shared& run, void* library)
      : program_(program), number_(number), run_(run), library_(library) {}

  int play() {
    if (call("cuInit", 0U) != 0) return 2;
    for (unsigned card = 0; card < kCards; ++card) {
      if (call("cuDevicePrimaryCtxRetain", &primary_[card], static_cast<CUdevice>(card)) != 0) return 3;
    }
    if (!wait_until_opened(1)) return 4;  // all processes have their contexts
    for (unsigned round = 0; round < program_.rounds; ++round) {
      play_round(round);
      settle();
      if (!wait_until_opened(round + 2)) return 4;
    }
    give_all_back();
    return wait_until_opened(program_.rounds + 2) ? 0 : 4;
  }

 private:
  template <class... Arguments>
  CUresult call(const char* symbol, Arguments... arguments) {
    void* const found = dlsym(library_, symbol);
    if (found == nullptr) _exit(9);
    return reinterpret_cast<CUresult (*)(Arguments...)>(found)(arguments...);
  }

  void play_round(unsigned round) {
    std::vector<std::thread> others;
    const unsigned threads = round % 2 == 1 ? 1 : program_.threads;
    for (unsigned thread = 1; thread < threads; ++thread) {
      others.emplace_back([this, round, thread] { play_part(round, thread); });
    }
    play_part(round, 0);
    for (std::thread& other : others) other.join();
  }

  void play_part(unsigned round, unsigned thread) {
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      if (step.round != round || step.process != number_ || step.thread != thread) continue;
      use(step.current);
      run_.results[i] = play_step(step);
    }
  }

  bool wait_until_opened(unsigned round) {
    run_.arrived.fetch_add(1);
    while (run_.opened.load() < round) {
      if (run_.stop.load()) return false;
      usleep(100);
    }
    return true;
  }

  void use(unsigned card) { call("cuCtxSetCurrent", primary_[card]); }

  /// Waits until all requested work is done and the memory that pools released is known.
  void settle() {
    for (unsigned card = 0; card < kCards; ++card) {
      use(card);
      call("cuCtxSynchronize");
    }
  }

  int play_step(const Step& step) {
    switch (step.verb) {
      case Verb::kAlloc: case Verb::kPitch: case Verb::kManaged: case Verb::kArray: case Verb::kMipmap:
        return allocate(step);
      case Verb::kHandle: case Verb::kMapped: return physical(step);
      case Verb::kAsync: case Verb::kFromPool: return in_order(step);
      case Verb::kFree: return free_one(step);
      case Verb::kFreeInOrder: return free_in_order(step);
      case Verb::kMakeStream: case Verb::kEndStream: case Verb::kDelay: case Verb::kSync: return streams(step);
      case Verb::kMakePool: case Verb::kEndPool: case Verb::kTrimPool: case Verb::kKeepAll: case Verb::kUsePool:
        return pools(step);
      case Verb::kMakeContext: case Verb::kAttach: case Verb::kDetach: case Verb::kEndContext: return contexts(step);
      case Verb::kCapture: case Verb::kNodes: return make_graph(step);
      case Verb::kLaunch: case Verb::kFreeNodes: case Verb::kEndGraph: return graphs(step);
      case Verb::kTrimGraphs: return call("cuDeviceGraphMemTrim", static_cast<CUdevice>(step.card));
      case Verb::kExport: return publish(step);
      case Verb::kImport: case Verb::kOpen: return adopt(step);
      case Verb::kNonsense: return nonsense(step);
      default: return info();
    }
  }

  /// kSkipped or kRefusedBefore when there is no object, otherwise 0.
  static int missing(const Object& object) {
    return object.state == State::kLive ? 0 : object.state == State::kRefused ? kRefusedBefore : kSkipped;
  }
  /// The result for a step with a slot that is already in use.
  static int in_the_way(const Object& object) { return object.state == State::kRefused ? kRefusedBefore : kSkipped; }

  static int made(Object& object, const Step& step, CUresult result) {
    object.made_by = step.verb;
    object.state = result == 0                          ? State::kLive
                   : result == CUDA_ERROR_OUT_OF_MEMORY ? State::kRefused
                                                        : State::kNone;
    return result;
  }
  static int refused(Object& object, const Step& step) {
    object.made_by = step.verb;
    object.state = State::kRefused;
    return kRefusedBefore;
  }

  int allocate(const Step& step) {
    Object& object = memory_[step.slot % kMemorySlots];
    if (object.state != State::kNone) return in_the_way(object);
    object = {};
    object.context = step.with;
    object.size = step.bytes;
    if (step.with != 0) {
      const Object& context = contexts_[step.with - 1];
      if (const int gone = missing(context); gone != 0) return gone == kRefusedBefore ? refused(object, step) : gone;
      call("cuCtxSetCurrent", as<CUcontext>(context.handle));
    }
    const auto bytes = static_cast<std::size_t>(step.bytes);
    std::size_t pitch = 0;
    const CUDA_ARRAY_DESCRIPTOR flat{1024, bytes / 4096 + 1, 0x20, 1};
    const CUDA_ARRAY3D_DESCRIPTOR levels{1024, bytes / 8192 + 1, 0, 0x20, 1, 0};
    switch (step.verb) {
      case Verb::kAlloc: return made(object, step, call("cuMemAlloc_v2", &object.handle, bytes));
      case Verb::kPitch:
        return made(object, step, call("cuMemAllocPitch_v2", &object.handle, &pitch, std::size_t{500},
                                       bytes / 512 + 1, 4U));
      case Verb::kManaged: return made(object, step, call("cuMemAllocManaged", &object.handle, bytes, 1U));
      case Verb::kArray: return made(object, step, call("cuArrayCreate_v2", &object.handle, &flat));
      default: return made(object, step, call("cuMipmappedArrayCreate", &object.handle, &levels, 3U));
    }
  }

  int physical(const Step& step) {
    Object& object = memory_[step.slot % kMemorySlots];
    if (object.state != State::kNone) return in_the_way(object);
    constexpr std::uint64_t kUnit = 2U << 20;
    const std::size_t size = (step.bytes + kUnit - 1) / kUnit * kUnit;
    const bool mapped = step.verb == Verb::kMapped;
    const CUmemAllocationProp where{1, mapped ? 0 : 1, {1, static_cast<int>(step.card)}, nullptr, {}};
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = call("cuMemCreate", &handle, size, &where, 0ULL);
    object = {};
    object.size = size;
    object.handle = handle;
    if (result == 0 && mapped) {
      result = call("cuMemAddressReserve", &object.handle, size, std::size_t{0}, CUdeviceptr{0}, 0ULL);
      result = result != 0 ? result : call("cuMemMap", object.handle, size, std::size_t{0}, handle, 0ULL);
      call("cuMemRelease", handle);
    }
    return made(object, step, result);
  }

  /// The stream for `which`, and whether to use the calls for the thread's own default stream.
  int stream_of(unsigned which, CUstream* stream, bool* own) {
    *stream = nullptr;
    *own = which == kOwnStream;
    if (which >= kStreams) return 0;
    *stream = as<CUstream>(streams_[which].handle);
    return missing(streams_[which]);
  }

  int in_order(const Step& step) {
    Object& object = memory_[step.slot % kMemorySlots];
    if (object.state != State::kNone) return in_the_way(object);
    object = {};
    object.size = step.bytes;
    const auto bytes = static_cast<std::size_t>(step.bytes);
    if (step.verb == Verb::kFromPool) {
      const int gone = missing(pools_[step.with % kPools]);
      if (gone != 0) return gone;
      return made(object, step, call("cuMemAllocFromPoolAsync", &object.handle, bytes,
                                     as<CUmemoryPool>(pools_[step.with % kPools].handle), CUstream{}));
    }
    CUstream stream = nullptr;
    bool own = false;
    if (const int gone = stream_of(step.with, &stream, &own); gone != 0) return gone;
    return made(object, step, call(own ? "cuMemAllocAsync_ptsz" : "cuMemAllocAsync", &object.handle, bytes, stream));
  }

  CUresult end_of(const Object& object) {
    switch (object.made_by) {
      case Verb::kHandle: case Verb::kImport: return call("cuMemRelease", object.handle);
      case Verb::kMapped: {
        const CUresult result = call("cuMemUnmap", object.handle, static_cast<std::size_t>(object.size));
        call("cuMemAddressFree", object.handle, static_cast<std::size_t>(object.size));
        return result;
      }
      case Verb::kArray: return call("cuArrayDestroy", as<CUarray>(object.handle));
      case Verb::kMipmap: return call("cuMipmappedArrayDestroy", as<CUmipmappedArray>(object.handle));
      case Verb::kOpen: return call("cuIpcCloseMemHandle", object.handle);
      default: return call("cuMemFree_v2", object.handle);
    }
  }

  /// False while other processes may open it.
  static bool may_end(const Object& object, const Step& step) { return object.notice == 0 || step.round % 2 == 1; }

  /// Other processes may keep the object, unless they were refused it before. From now on it is no longer available.
  void forget(Object& object) {
    if (object.notice != 0) run_.board[number_][object.notice - 1].state = 4;
    object = {};
  }

  int free_one(const Step& step) {
    Object& object = memory_[step.slot % kMemorySlots];
    const int gone = missing(object);
    if (gone == kSkipped || !may_end(object, step)) return gone != 0 ? gone : kSkipped;
    if (gone == kRefusedBefore) {
      object = {};
      return gone;
    }
    const CUresult result = end_of(object);
    if (result == 0) forget(object);
    return result;
  }

  int free_in_order(const Step& step) {
    Object& object = memory_[step.slot % kMemorySlots];
    const bool fitting = object.made_by == Verb::kAsync || object.made_by == Verb::kFromPool ||
                         object.made_by == Verb::kAlloc;
    CUstream stream = nullptr;
    bool own = false;
    const int no_stream = stream_of(step.with, &stream, &own);
    const int gone = missing(object);
    if (no_stream != 0 || !fitting) return gone == kRefusedBefore ? gone : no_stream != 0 ? no_stream : kSkipped;
    if (gone == kSkipped || !may_end(object, step)) return gone != 0 ? gone : kSkipped;
    if (gone == kRefusedBefore) {
      object = {};
      return gone;
    }
    const CUresult result = call(own ? "cuMemFreeAsync_ptsz" : "cuMemFreeAsync", object.handle, stream);
    if (result == 0) forget(object);
    return result;
  }

  static void linger(void*) { usleep(300); }

  int streams(const Step& step) {
    Object& object = streams_[step.slot % kStreams];
    if (step.verb == Verb::kMakeStream) {
      if (object.state != State::kNone) return in_the_way(object);
      return made(object, step, call("cuStreamCreate", &object.handle, 1U));
    }
    if (const int gone = missing(object); gone != 0) return gone;
    const auto stream = as<CUstream>(object.handle);
    if (step.verb == Verb::kSync) return call("cuStreamSynchronize", stream);
    if (step.verb == Verb::kDelay) {
      return call("cuLaunchHostFunc", stream, &Process::linger, static_cast<void*>(nullptr));
    }
    const CUresult result = call("cuStreamDestroy_v2", stream);
    if (result == 0) object = {};
    return result;
  }

  int pools(const Step& step) {
    Object& object = pools_[step.with % kPools];
    if (step.verb == Verb::kMakePool) {
      CUmemPoolProps properties{};
      properties.alloc_type = 1;
      properties.location = {1, static_cast<int>(step.card)};
      if (object.state != State::kNone) return in_the_way(object);
      object.context = step.card;
      return made(object, step, call("cuMemPoolCreate", &object.handle, &properties));
    }
    if (const int gone = missing(object); gone != 0) return gone;
    const auto pool = as<CUmemoryPool>(object.handle);
    std::uint64_t all = ~0ULL;
    switch (step.verb) {
      case Verb::kTrimPool: return call("cuMemPoolTrimTo", pool, static_cast<std::size_t>(step.bytes));
      case Verb::kKeepAll: return call("cuMemPoolSetAttribute", pool, 4, &all);
      case Verb::kUsePool: return call("cuDeviceSetMemPool", static_cast<CUdevice>(step.card), pool);
      default: break;
    }
    const CUresult result = call("cuMemPoolDestroy", pool);
    if (result == 0) object = {};
    return result;
  }

  void forget_context(unsigned slot) {
    for (Object& object : memory_) {
      if (object.context == slot + 1) object = {};
    }
    contexts_[slot] = {};
  }

  int contexts(const Step& step) {
    Object& object = contexts_[step.slot % kContexts];
    if (step.verb == Verb::kMakeContext) {
      if (object.state != State::kNone) return in_the_way(object);
      object.users = 1;
      return made(object, step, call("cuCtxCreate_v2", &object.handle, 0U, static_cast<CUdevice>(step.card)));
    }
    if (const int gone = missing(object); gone != 0) {
      if (gone == kRefusedBefore && step.verb == Verb::kEndContext) forget_context(step.slot % kContexts);
      return gone;
    }
    const auto context = as<CUcontext>(object.handle);
    CUcontext again = nullptr;
    if (step.verb == Verb::kAttach) {
      call("cuCtxSetCurrent", context);
      const CUresult result = call("cuCtxAttach", &again, 0U);
      object.users += result == 0 ? 1 : 0;
      return result;
    }
    if (step.verb == Verb::kDetach) {
      call("cuCtxSetCurrent", context);
      const CUresult result = call("cuCtxDetach", context);
      if (result == 0 && --object.users == 0) forget_context(step.slot % kContexts);
      return result;
    }
    const CUresult result = call("cuCtxDestroy_v2", context);
    if (result == 0) forget_context(step.slot % kContexts);
    return result;
  }

  CUresult capture(Object& object, const Step& step, CUgraph* graph) {
    const auto stream = as<CUstream>(streams_[step.with].handle);
    CUresult result = call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != 0) return result;
    for (; object.node_count < 2 && result == 0; ++object.node_count) {
      CUdeviceptr& node = object.nodes.at(object.node_count);
      result = call("cuMemAllocAsync", &node, static_cast<std::size_t>(step.bytes), stream);
    }
    const CUresult ended = call("cuStreamEndCapture", stream, graph);
    return result != 0 ? result : ended;
  }
  CUresult nodes(Object& object, const Step& step, CUgraph* graph) {
    CUresult result = call("cuGraphCreate", graph, 0U);
    for (; object.node_count < 3 && result == 0; ++object.node_count) {
      CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
      parameters.pool_props.alloc_type = 1;
      parameters.pool_props.location = {1, static_cast<int>((step.card + object.node_count) % kCards)};
      parameters.bytesize = static_cast<std::size_t>(step.bytes);
      CUgraphNode node = nullptr;
      result = call("cuGraphAddMemAllocNode", &node, *graph, static_cast<const CUgraphNode*>(nullptr), std::size_t{0},
                    &parameters);
      object.nodes.at(object.node_count) = parameters.dptr;
    }
    return result;
  }

  int make_graph(const Step& step) {
    Object& object = graphs_[step.slot % kGraphs];
    if (object.state != State::kNone) return in_the_way(object);
    if (step.verb == Verb::kCapture) {
      if (const int gone = missing(streams_[step.with]); gone != 0) return gone;
    }
    object.node_count = 0;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUresult result = step.verb == Verb::kCapture ? capture(object, step, &graph) : nodes(object, step, &graph);
    result = result != 0 ? result : call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
    if (result != 0 && graph != nullptr) call("cuGraphDestroy", graph);
    object.handle = reinterpret_cast<std::uint64_t>(graph);
    object.exec = reinterpret_cast<std::uint64_t>(exec);
    return made(object, step, result);
  }

  CUresult free_nodes(const Object& object) {
    CUresult result = 0;
    for (unsigned i = 0; i < object.node_count; ++i) {
      const CUresult one = call("cuMemFree_v2", object.nodes.at(i));
      result = result != 0 ? result : one;
    }
    return result;
  }

  int graphs(const Step& step) {
    Object& object = graphs_[step.slot % kGraphs];
    if (const int gone = missing(object); gone != 0) {
      if (gone == kRefusedBefore && step.verb == Verb::kEndGraph) object = {};
      return gone;
    }
    const auto exec = as<CUgraphExec>(object.exec);
    switch (step.verb) {
      case Verb::kLaunch: {
        if (const int gone = missing(streams_[step.with]); gone != 0) return gone;
        const auto stream = as<CUstream>(streams_[step.with].handle);
        const CUresult result = call("cuGraphLaunch", exec, stream);
        return result != 0 ? result : call("cuStreamSynchronize", stream);
      }
      case Verb::kFreeNodes: return free_nodes(object);
      default: break;
    }
    free_nodes(object);
    const CUresult result = call("cuGraphExecDestroy", exec);
    call("cuGraphDestroy", as<CUgraph>(object.handle));
    object = {};
    return result;
  }

  int publish(const Step& step) {
    Object& object = memory_[step.slot % kMemorySlots];
    Shared::Notice& notice = run_.board[number_][step.with % kBoard];
    if (notice.state != 0 || object.notice != 0) return notice.state == 3 ? kRefusedBefore : kSkipped;
    const bool large = object.made_by == Verb::kAlloc && object.context == 0 && object.size >= (2U << 20);
    if (object.made_by != Verb::kHandle && !large) return object.state == State::kRefused ? kRefusedBefore : kSkipped;
    if (object.state == State::kRefused) {
      notice.state = 3;
      object.notice = 1 + step.with % kBoard;
    }
    if (const int gone = missing(object); gone != 0) return gone;
    CUresult result = 0;
    if (!large) {
      result = call("cuMemExportToShareableHandle", static_cast<void*>(&notice.descriptor), object.handle, 1, 0ULL);
      notice.state = result == 0 ? 1 : 0;
    } else {
      CUipcMemHandle handle{};
      result = call("cuIpcGetMemHandle", &handle, object.handle);
      std::memcpy(notice.handle, handle.reserved, sizeof handle.reserved);
      notice.state = result == 0 ? 2 : 0;
    }
    notice.pid = getpid();
    object.notice = result == 0 ? 1 + step.with % kBoard : 0;
    return result;
  }

  int adopt(const Step& step) {
    Object& object = memory_[step.slot % kMemorySlots];
    if (object.state != State::kNone) return in_the_way(object);
    const Shared::Notice& notice = run_.board[step.with % kMostProcesses][step.with / kMostProcesses];
    object = {};
    if (notice.state == 3) return refused(object, step);
    if (step.verb == Verb::kImport && notice.state == 1) {
      const std::string path = "/proc/" + std::to_string(notice.pid) + "/fd/" + std::to_string(notice.descriptor);
      const int shared = open(path.c_str(), O_RDWR | O_CLOEXEC);
      const CUresult result =
          call("cuMemImportFromShareableHandle", &object.handle, reinterpret_cast<void*>(std::intptr_t{shared}), 1);
      close(shared);
      return made(object, step, result);
    }
    if (step.verb == Verb::kOpen && notice.state == 2) {
      CUipcMemHandle handle{};
      std::memcpy(handle.reserved, notice.handle, sizeof handle.reserved);
      return made(object, step, call("cuIpcOpenMemHandle_v2", &object.handle, handle, 1U));
    }
    return kSkipped;
  }

  int nonsense(const Step& step) {
    CUdeviceptr address = 0;
    CUmemoryPool pool = nullptr;
    CUcontext context = nullptr;
    std::size_t bytes = 0;
    switch (step.with) {
      case 0: return call("cuMemFree_v2", CUdeviceptr{0x1234});
      case 1: return call("cuMemAlloc_v2", &address, std::size_t{0});
      case 2: return call("cuMemAlloc_v2", &address, ~std::size_t{0});
      case 3: return call("cuMemRelease", CUmemGenericAllocationHandle{0x777777});
      case 4:
        call("cuDeviceGetDefaultMemPool", &pool, static_cast<CUdevice>(step.card));
        return call("cuMemPoolDestroy", pool);
      case 5: return call("cuDevicePrimaryCtxRetain", &context, CUdevice{99});
      case 6: return call("cuMemFreeAsync", CUdeviceptr{0x1234}, CUstream{});
      default: return call("cuDeviceTotalMem_v2", &bytes, CUdevice{99});
    }
  }

  int info() {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    const CUresult result = call("cuMemGetInfo_v2", &free_bytes, &total);
    return result != 0 || free_bytes <= total ? result : 999;
  }

  void give_all_back() {
    use(0);
    for (Object& graph : graphs_) {
      if (graph.state != State::kLive) continue;
      free_nodes(graph);
      call("cuGraphExecDestroy", as<CUgraphExec>(graph.exec));
      call("cuGraphDestroy", as<CUgraph>(graph.handle));
    }
    for (Object& object : memory_) {
      if (object.state == State::kLive) end_of(object);
    }
    for (unsigned i = 0; i < kContexts; ++i) {
      if (contexts_[i].state == State::kLive) call("cuCtxDestroy_v2", as<CUcontext>(contexts_[i].handle));
    }
    settle();
    use(0);
    for (const Object& pool : pools_) {
      if (pool.state == State::kLive) call("cuMemPoolDestroy", as<CUmemoryPool>(pool.handle));
    }
    for (const Object& stream : streams_) {
      if (stream.state == State::kLive) call("cuStreamDestroy_v2", as<CUstream>(stream.handle));
    }
    settle();
    for (unsigned card = 0; card < kCards; ++card) {
      call("cuDeviceGraphMemTrim", static_cast<CUdevice>(card));
      use(card);
      info();  // the library checks what its pools still hold
    }
    for (unsigned card = 0; card < kCards; ++card) {
      call("cuDevicePrimaryCtxRelease_v2", static_cast<CUdevice>(card));
    }
  }

  const Program& program_;
  const unsigned number_;
  Shared& run_;
  void* const library_;
  std::array<CUcontext, kCards> primary_ = {};
  std::array<Object, kMemorySlots + 1> memory_;  // one more, for a thread that has no slot of its own
  std::array<Object, kStreams + 1> streams_;
  std::array<Object, kPools> pools_;
  std::array<Object, kContexts> contexts_;
  std::array<Object, kGraphs> graphs_;
};

}  // namespace

int run_process(const Program& program, unsigned process, Shared& run, const char* library) {
  void* const opened = dlopen(library, RTLD_NOW);
  if (opened == nullptr) return 1;
  return Process(program, process, run, opened).play();
}

}  // namespace carve::isolation
