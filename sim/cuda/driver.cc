#include "sim/cuda/driver.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "sim/model/driver_version.h"

namespace carve::sim::cu {

__thread Context* t_current = nullptr;

namespace {

pthread_key_t g_thread_key;
std::atomic<std::uint64_t> g_threads{1};

void free_thread_state(void* state) { delete static_cast<ThreadState*>(state); }

/// A process sees a card when it can open the card's node and the node is a device. As with the real driver, the node
/// stays open until the process ends.
bool card_visible(std::uint32_t card) {
  const std::string path = "/dev/nvidia" + std::to_string(card);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat status;
  const bool device = fstat(fd, &status) == 0 && S_ISCHR(status.st_mode);
  if (!device) close(fd);
  return device;
}

/// Like the real driver's library, a process that has initialised CUDA holds the node of unified memory until it ends.
/// Where a container has no such node, the simulated driver does without it.
void hold_unified_memory_node() { static_cast<void>(open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC)); }

/// The card that one element of CUDA_VISIBLE_DEVICES names: an index into the visible cards, or the first characters of
/// a UUID. −1: none.
int choose(std::string_view word, const std::vector<std::uint32_t>& cards, const Machine& machine) {
  if (word.starts_with("GPU-")) {
    int found = -1;
    for (std::uint32_t card : cards) {
      if (!std::string_view(machine.cards[card].uuid).starts_with(word)) continue;
      if (found >= 0) return -1;  // ambiguous
      found = static_cast<int>(card);
    }
    return found;
  }
  char* end = nullptr;
  const std::string text(word);
  const long index = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || index < 0 || index >= static_cast<long>(cards.size())) return -1;
  return static_cast<int>(cards[static_cast<std::size_t>(index)]);
}

/// Reads CUDA_VISIBLE_DEVICES as the driver does: a list that ends at the first element that names no card.
std::vector<std::uint32_t> filter(const std::vector<std::uint32_t>& cards, const Machine& machine) {
  const char* wanted = std::getenv("CUDA_VISIBLE_DEVICES");
  if (wanted == nullptr) return cards;
  std::vector<std::uint32_t> out;
  std::string_view rest = wanted;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    std::string_view word = rest.substr(0, comma);
    while (word.starts_with(' ')) word.remove_prefix(1);
    const int card = choose(word, cards, machine);
    if (card < 0) break;
    for (std::uint32_t have : out)
      if (have == static_cast<std::uint32_t>(card)) return {};  // a card is named twice: no card is visible
    out.push_back(static_cast<std::uint32_t>(card));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return out;
}

}  // namespace

Driver& Driver::get() {
  // Never destroyed: other threads may still be inside the driver while the process exits.
  static Driver* driver = new Driver();
  return *driver;
}

void Driver::forked() {
  Driver& driver = get();
  t_current = nullptr;
  if (driver.state_.load() != State::kReady) return;
  // As with the real driver's device files, the child's copy of the connection keeps what the parent held until the
  // child ends or calls exec, even when the parent dies.
  driver.state_.store(State::kForked);
}

CUresult Driver::connect() {
  kernel_ = std::make_unique<Connection>();
  const Status status = kernel_->open(ClientKind::kCuda);
  if (status == Status::kGone) return CUDA_ERROR_NO_DEVICE;
  if (status != Status::kOk) return CUDA_ERROR_UNKNOWN;
  std::string error;
  if (!parse_machine(kernel_->machine().profile, kernel_->machine().instance, &machine_, &error))
    return CUDA_ERROR_UNKNOWN;
  channel_ = kernel_->channel();
  bell_ = kernel_->bell();
  return CUDA_SUCCESS;
}

void Driver::find_devices() {
  std::vector<std::uint32_t> cards;
  for (std::uint32_t card = 0; card < machine_.count; ++card)
    if (card_visible(card)) cards.push_back(card);
  cards = filter(cards, machine_);
  for (std::uint32_t card : cards) {
    devices_.push_back(std::make_unique<Device>());
    devices_.back()->ordinal = static_cast<int>(devices_.size()) - 1;
    devices_.back()->card = card;
  }
}

CUresult Driver::init(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const State state = state_.load();
  if (state == State::kReady) return CUDA_SUCCESS;
  if (state == State::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  const MutexLock lock(mutex_);
  if (state_.load() == State::kReady) return CUDA_SUCCESS;
  if (const CUresult rc = connect(); rc != CUDA_SUCCESS) {
    kernel_.reset();
    return rc;
  }
  find_devices();
  if (devices_.empty()) {
    kernel_.reset();
    return CUDA_ERROR_NO_DEVICE;
  }
  hold_unified_memory_node();
  static bool once = [] {
    pthread_key_create(&g_thread_key, free_thread_state);
    return pthread_atfork(nullptr, nullptr, &Driver::forked) == 0;
  }();
  (void)once;
  state_.store(State::kReady);
  return CUDA_SUCCESS;
}

Device* Driver::device(int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return nullptr;
  return devices_[static_cast<std::size_t>(ordinal)].get();
}

ThreadState& thread_state() {
  auto* state = static_cast<ThreadState*>(pthread_getspecific(g_thread_key));
  if (state == nullptr) {
    state = new ThreadState();
    state->number = g_threads.fetch_add(1);
    pthread_setspecific(g_thread_key, state);
  }
  return *state;
}

CUresult no_context() {
  if (Driver::get().ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return t_current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void say_once(std::atomic<bool>* flag, const char* line) {
  if (flag->exchange(true)) return;
  std::fprintf(stderr, "simulated CUDA driver: %s\n", line);
}

CUresult fault_error(std::uint32_t fault) {
  switch (static_cast<Fault>(fault)) {
    case Fault::kNone: return CUDA_SUCCESS;
    case Fault::kIllegalAddress: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case Fault::kLaunchFailed: return CUDA_ERROR_LAUNCH_FAILED;
    case Fault::kUncorrectableEcc: return CUDA_ERROR_ECC_UNCORRECTABLE;
    case Fault::kUnknown: break;
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult error_of(Status status) {
  switch (status) {
    case Status::kOk:
      return CUDA_SUCCESS;
    case Status::kNoMemory:
    case Status::kTooMany:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Status::kNoSuchCard:
      return CUDA_ERROR_INVALID_DEVICE;
    case Status::kCardLost:
      return CUDA_ERROR_UNKNOWN;
    case Status::kNoSuchHandle:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

CU_EXPORT CUresult cuInit(unsigned flags) { return Driver::get().init(flags); }

CU_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kCudaDriverVersion;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
