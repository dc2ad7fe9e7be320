#include "tests/isolation/programs.h"

#include <random>

namespace carve::isolation {

namespace {

constexpr std::uint64_t kKiB = 1U << 10;
constexpr std::uint64_t kMebi = 1U << 20;
constexpr std::uint64_t kSizes[] = {1,        512,       4 * kKiB,      300 * kKiB, kMebi - 1,  kMebi,
                                    2 * kMebi, 2 * kMebi, 2 * kMebi + 1, 7 * kMebi,  33 * kMebi, 64 * kMebi};

struct Word {
  const char* name;
  unsigned weight;
  bool alone;  // only while the other threads of the process are idle
};
constexpr Word kWords[] = {
    {"cuMemAlloc", 12, false},
    {"cuMemAllocPitch", 3, false},
    {"cuMemAllocManaged", 3, false},
    {"cuArrayCreate", 3, false},
    {"cuMipmappedArrayCreate", 3, false},
    {"cuMemCreate", 8, false},
    {"cuMemCreate, cuMemMap, cuMemRelease", 5, false},
    {"cuMemAllocAsync", 10, false},
    {"cuMemAllocFromPoolAsync", 8, false},
    {"free", 11, false},
    {"cuMemFreeAsync", 8, false},
    {"cuStreamCreate", 9, false},
    {"cuStreamDestroy", 2, false},
    {"cuLaunchHostFunc", 4, false},
    {"cuStreamSynchronize", 4, false},
    {"cuMemPoolCreate", 9, false},
    {"cuMemPoolDestroy", 3, true},
    {"cuMemPoolTrimTo", 2, false},
    {"cuMemPoolSetAttribute, keep all", 2, false},
    {"cuDeviceSetMemPool", 4, true},
    {"cuCtxCreate", 12, true},
    {"cuCtxAttach", 2, true},
    {"cuCtxDetach", 4, true},
    {"cuCtxDestroy", 4, true},
    {"capture of cuMemAllocAsync, instantiated", 4, false},
    {"cuGraphAddMemAllocNode of both cards, instantiated", 4, false},
    {"cuGraphLaunch", 6, false},
    {"cuMemFree of nodes", 5, false},
    {"cuGraphExecDestroy", 4, false},
    {"cuDeviceGraphMemTrim", 2, false},
    {"export", 12, false},
    {"cuMemImportFromShareableHandle", 6, false},
    {"cuIpcOpenMemHandle", 6, false},
    {"nonsense", 3, false},
    {"cuMemGetInfo", 3, false},
};
static_assert(std::size(kWords) == static_cast<std::size_t>(Verb::kCount));

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {
    program_.seed = seed;
    program_.processes = 1 + below(kMostProcesses);
    program_.threads = 1 + below(kMostThreads);
    program_.rounds = 4 + 2 * below(4);
    program_.all_fits = below(4) == 0;
    constexpr std::uint64_t kRooms[] = {66, 130, 170, 300};
    program_.room = (program_.all_fits ? 8192 : kRooms[below(4)]) * kMebi;
  }

  Program make() {
    for (round_ = 0; round_ < program_.rounds; ++round_) {
      const bool alone = round_ % 2 == 1;
      for (unsigned process = 0; process < program_.processes; ++process) {
        for (unsigned thread = 0; thread < (alone ? 1 : program_.threads); ++thread) {
          const unsigned length = 2 + below(alone ? 5 : 9);
          for (unsigned i = 0; i < length; ++i) add(process, thread, alone);
        }
      }
    }
    return program_;
  }

 private:
  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }

  /// One of `count` slots that the thread may use in this round; any of them when it is alone.
  unsigned own(unsigned count, unsigned thread, bool alone) {
    for (unsigned turn = 0; turn < 64; ++turn) {
      const unsigned slot = below(count);
      if (alone || (slot + round_ / 2) % program_.threads == thread) return slot;
    }
    return count;
  }
  unsigned own_stream(unsigned process, unsigned thread, bool alone) {
    const unsigned kind = below(4);
    return kind == 0   ? kNoStream
           : kind == 1 ? kOwnStream
                       : fitting(known_[process].streams, true, thread, alone);
  }

  Verb choose(bool alone) {
    unsigned all = 0;
    for (const Word& word : kWords) all += word.alone && !alone ? 0 : word.weight;
    unsigned at = below(all);
    for (unsigned verb = 0;; ++verb) {
      const unsigned weight = kWords[verb].alone && !alone ? 0 : kWords[verb].weight;
      if (at < weight) return static_cast<Verb>(verb);
      at -= weight;
    }
  }

  /// A suitable slot, as far as is known here: empty for a step that creates something, full for a step that needs it.
  /// After some attempts any slot, so that misses occur too.
  unsigned fitting(std::vector<bool>& full, bool wanted, unsigned thread, bool alone) {
    const auto count = static_cast<unsigned>(full.size());
    unsigned slot = own(count, thread, alone);
    for (unsigned turn = 0; turn < 12 && full[slot % count] != wanted; ++turn) slot = own(count, thread, alone);
    return slot;
  }

  void place(Step& step, bool alone) {
    Known& known = known_[step.process];
    const auto choose_from = [&](std::vector<bool>& full, bool makes, bool ends) {
      const unsigned slot = fitting(full, !makes, step.thread, alone);
      if (makes || ends) full[slot % full.size()] = makes;
      return slot;
    };
    switch (step.verb) {
      case Verb::kMakeStream: case Verb::kEndStream: case Verb::kDelay: case Verb::kSync:
        step.slot = choose_from(known.streams, step.verb == Verb::kMakeStream, step.verb == Verb::kEndStream);
        break;
      case Verb::kFromPool: case Verb::kTrimPool: case Verb::kKeepAll: case Verb::kMakePool: case Verb::kEndPool:
      case Verb::kUsePool:
        step.with = choose_from(known.pools, step.verb == Verb::kMakePool, step.verb == Verb::kEndPool);
        break;
      case Verb::kMakeContext: case Verb::kAttach: case Verb::kDetach: case Verb::kEndContext:
        step.slot = choose_from(known.contexts, step.verb == Verb::kMakeContext, step.verb == Verb::kEndContext);
        break;
      case Verb::kCapture: case Verb::kNodes: case Verb::kLaunch: case Verb::kFreeNodes: case Verb::kEndGraph:
        step.slot = choose_from(known.graphs, step.verb == Verb::kCapture || step.verb == Verb::kNodes,
                                step.verb == Verb::kEndGraph);
        step.with = fitting(known.streams, true, step.thread, alone);
        break;
      case Verb::kImport: case Verb::kOpen:
        step.with = choose_notice(step.verb == Verb::kImport ? Verb::kHandle : Verb::kAlloc);
        break;
      case Verb::kNonsense:
        step.with = below(8);
        break;
      default:
        break;
    }
    const bool ends = step.verb == Verb::kFree || step.verb == Verb::kFreeInOrder;
    const bool makes = step.verb <= Verb::kFromPool || step.verb == Verb::kImport || step.verb == Verb::kOpen;
    if (makes || ends) {
      step.slot = choose_from(known.memory, makes, ends);
      known.kinds.at(step.slot) = makes ? step.verb : Verb::kInfo;
      const bool closed = step.verb == Verb::kAlloc && (step.with != 0 || step.bytes < 2 * kMebi);
      if (closed) known.kinds.at(step.slot) = Verb::kInfo;
    }
    if (step.verb == Verb::kExport) publish(step, alone);
  }

  /// Puts an object that other processes can open on the board, if there is one.
  void publish(Step& step, bool alone) {
    Known& known = known_[step.process];
    const auto open = [&](unsigned slot) {
      return known.kinds.at(slot) == Verb::kHandle || known.kinds.at(slot) == Verb::kAlloc;
    };
    step.with = own(kBoard, step.thread, alone);
    step.slot = own(kMemorySlots, step.thread, alone);
    for (unsigned turn = 0; turn < 24 && !open(step.slot); ++turn) step.slot = own(kMemorySlots, step.thread, alone);
    Verb& notice = known.board.at(step.with);
    if (notice == Verb::kInfo && open(step.slot)) notice = known.kinds.at(step.slot);
  }

  /// A place on the board with an object of this kind, as the runner names it.
  unsigned choose_notice(Verb kind) {
    unsigned board = 0;
    unsigned process = 0;
    for (unsigned turn = 0; turn < 24; ++turn) {
      board = below(kBoard);
      process = below(program_.processes);
      if (known_[process].board.at(board) == kind) break;
    }
    return board * kMostProcesses + process;
  }

  void add(unsigned process, unsigned thread, bool alone) {
    Step step;
    step.round = round_;
    step.process = process;
    step.thread = thread;
    step.verb = choose(alone);
    step.current = below(kCards);
    step.card = below(kCards);
    step.bytes = kSizes[below(std::size(kSizes))];
    if (step.verb <= Verb::kMipmap && below(3) == 0) step.with = 1 + below(kContexts);
    if (step.verb == Verb::kAsync || step.verb == Verb::kFreeInOrder) step.with = own_stream(process, thread, alone);
    // Objects are put on the board in one kind of round and taken in the other, so that the two never overlap.
    const bool taken = step.verb == Verb::kImport || step.verb == Verb::kOpen;
    if ((taken && alone) || (step.verb == Verb::kExport && !alone)) return;
    place(step, alone);
    if (program_.steps.size() < kMostSteps) program_.steps.push_back(step);
  }

  /// The slots of a process that are full when every request was granted.
  struct Known {
    std::vector<bool> memory = std::vector<bool>(kMemorySlots), streams = std::vector<bool>(kStreams),
                      pools = std::vector<bool>(kPools), contexts = std::vector<bool>(kContexts),
                      graphs = std::vector<bool>(kGraphs);
    // The kind of each slot for other processes, and of the board: a handle, memory of cuMemAlloc, or something else.
    std::vector<Verb> kinds = std::vector<Verb>(kMemorySlots + 1, Verb::kInfo);
    std::vector<Verb> board = std::vector<Verb>(kBoard + 1, Verb::kInfo);
  };

  std::mt19937_64 random_;
  Program program_;
  Known known_[kMostProcesses];
  unsigned round_ = 0;
};

}  // namespace

Program generate(std::uint64_t seed) { return Generator(seed).make(); }

std::string describe(const Step& step) {
  const auto number = [](auto value) { return std::to_string(value); };
  return "round " + number(step.round) + " process " + number(step.process) + " thread " + number(step.thread) + ": " +
         kWords[static_cast<unsigned>(step.verb)].name + " slot " + number(step.slot) + " with " + number(step.with) +
         " card " + number(step.card) + " (current " + number(step.current) + ") bytes " + number(step.bytes);
}

}  // namespace carve::isolation
