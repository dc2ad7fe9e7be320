#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "sim/daemon/kernel.h"

// The card's real-time schedule, as discrete events that run up to the present.
//
// Each card has two engines. The compute engine is time-sliced round-robin between processes: a time slice, then a
// switch cost during which nothing runs. A kernel that outlives its time slice is preempted and continues in the next
// one. Within a process, kernels run one at a time in submission order, regardless of their stream (a kernel's duration
// is declared for the whole card). A process that is alone is never switched. The copy engine runs concurrently, first
// come first served. Streams are in order. Waits across streams and cards hold because all cards run on one clock.
namespace carve::sim {

class Timeline {
 public:
  Timeline(Kernel& kernel, std::uint64_t now) : k_(kernel), now_(now) {}

  void play() REQUIRES(k_.mutex_) {
    collect();
    for (bool present = false;;) {
      settle();
      for (std::uint32_t c = 0; c < k_.machine_.count; ++c) assign(k_.engines_[c]);
      const std::uint64_t next = next_event();
      const std::uint64_t until = std::min(next, now_);
      if (until > k_.time_) run_until(until);
      if (next <= now_) {
        finish_due();
      } else if (present) {
        return;
      } else {
        present = true;  // one more iteration at `now_` itself
      }
    }
  }

 private:
  void collect() REQUIRES(k_.mutex_) {
    for (std::uint32_t c = 0; c < k_.machine_.count; ++c) {
      auto& streams = k_.engines_[c].streams;
      for (std::size_t i = 0; i < streams.size();) {
        Stream* s = streams[i];
        const std::uint64_t tail = s->cell->submitted.load(std::memory_order_acquire);
        // A tail that no correct client writes is ignored.
        if (tail >= s->tail && tail - s->head <= kRingSlots) s->tail = tail;
        while (s->dead && s->pending()) complete(*s);  // so that no client waits for it for ever
        if (s->closing && !s->pending()) {
          k_.drop_stream(s);
        } else {
          ++i;
        }
      }
    }
  }

  [[nodiscard]] bool arrived(const Stream& s) const REQUIRES(k_.mutex_) {
    return s.pending() && std::min(s.front().submit_ns, now_) <= k_.time_;
  }

  void complete(Stream& s) REQUIRES(k_.mutex_) {
    StreamCell& cell = *s.cell;
    ++s.head;
    s.started = false;
    cell.done_ns.store(k_.time_, std::memory_order_relaxed);
    cell.completed.store(s.head, std::memory_order_seq_cst);
    if (cell.wait_for.load(std::memory_order_seq_cst) <= s.head) {
      cell.wait_for.store(kNoWaiter);
      cell.wake_word.fetch_add(1);
      syscall(SYS_futex, &cell.wake_word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }

  /// Completes commands that take no time (marks, waits, host functions) until nothing changes any more.
  void settle() REQUIRES(k_.mutex_) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t c = 0; c < k_.machine_.count; ++c)
        for (Stream* s : k_.engines_[c].streams)
          while (arrived(*s) && settle_front(*s)) moved = true;
    }
  }

  bool settle_front(Stream& s) REQUIRES(k_.mutex_) {
    const Command& command = s.front();
    switch (command.kind) {
      case CommandKind::kCompute:
      case CommandKind::kCopy:
        return false;
      case CommandKind::kMark:
        if (command.argument < kMaxTimeSlots)
          s.client->channel->time_slots[command.argument].store(k_.time_);
        break;
      case CommandKind::kWait:
        if (command.argument < kMaxStreams &&
            s.client->channel->streams[command.argument].completed.load() < command.target)
          return false;
        break;
      case CommandKind::kHost:
        // A host function begins when the stream reaches it, so its end is in the present.
        if (k_.time_ < now_ || s.cell->host_done.load() <= s.head) return false;
        break;
    }
    complete(s);
    return true;
  }

  [[nodiscard]] bool ready(const Stream& s, CommandKind kind) const REQUIRES(k_.mutex_) {
    return arrived(s) && s.front().kind == kind;
  }

  static void start(Stream& s) {
    if (s.started) return;
    s.started = true;
    s.remaining_ns = s.duration(s.head);
  }

  void assign(Engine& e) REQUIRES(k_.mutex_) {
    assign_copy(e);
    if (e.switching) {
      if (k_.time_ < e.switch_end) return;
      e.switching = false;
      e.slice_end = k_.time_ + slice_ns();
    }
    Stream* own = nullptr;
    Stream* next = nullptr;   // the stream of the process after the current one, in round-robin order
    Stream* first = nullptr;  // the stream of the process with the lowest number
    for (Stream* s : e.streams) {
      if (!ready(*s, CommandKind::kCompute)) continue;
      if (s->client == e.current) {
        if (own == nullptr || before(*s, *own)) own = s;
        continue;
      }
      if (first == nullptr || s->client->id < first->client->id) first = s;
      if (e.current != nullptr && s->client->id > e.current->id &&
          (next == nullptr || s->client->id < next->client->id))
        next = s;
    }
    Stream* other = next != nullptr ? next : first;
    e.running = nullptr;
    if (own != nullptr && (k_.time_ < e.slice_end || other == nullptr)) {
      if (k_.time_ >= e.slice_end) e.slice_end = k_.time_ + slice_ns();
      start(*own);
      e.running = own;
    } else if (other != nullptr) {
      load_context(e, other->client);
    }
  }

  /// Order within a process: started kernels first, then by submission.
  static bool before(const Stream& a, const Stream& b) {
    if (a.started != b.started) return a.started;
    return a.front().submit_ns < b.front().submit_ns;
  }

  void load_context(Engine& e, Client* client) REQUIRES(k_.mutex_) {
    const bool cold = e.current == nullptr;  // no context was loaded: there is nothing to save
    e.current = client;
    const std::uint64_t cost = cold ? 0 : std::uint64_t{k_.machine_.model->switch_us} * 1000;
    e.switching = true;
    e.switch_end = k_.time_ + cost;
    if (cost > 0) ++e.switches;
    if (cost == 0) assign(e);
  }

  void assign_copy(Engine& e) REQUIRES(k_.mutex_) {
    if (e.copying != nullptr && e.copying->started) return;
    e.copying = nullptr;
    for (Stream* s : e.streams)
      if (ready(*s, CommandKind::kCopy) &&
          (e.copying == nullptr || s->front().submit_ns < e.copying->front().submit_ns))
        e.copying = s;
    if (e.copying != nullptr) start(*e.copying);
  }

  [[nodiscard]] std::uint64_t slice_ns() const {
    return std::uint64_t{k_.machine_.model->slice_us} * 1000;
  }

  [[nodiscard]] std::uint64_t next_event() const REQUIRES(k_.mutex_) {
    std::uint64_t next = ~0ULL;
    for (std::uint32_t c = 0; c < k_.machine_.count; ++c) {
      const Engine& e = k_.engines_[c];
      if (e.switching) next = std::min(next, e.switch_end);
      if (e.running != nullptr) {
        next = std::min(next, k_.time_ + e.running->remaining_ns);
        // The end of the time slice is an event only when another process has work. A process that gets work later is
        // an event itself.
        if (e.slice_end > k_.time_) next = std::min(next, e.slice_end);
      }
      if (e.copying != nullptr) next = std::min(next, k_.time_ + e.copying->remaining_ns);
      for (const Stream* s : e.streams)
        if (s->pending() && !arrived(*s))
          next = std::min(next, std::min(s->front().submit_ns, now_));
    }
    return next;
  }

  void run_until(std::uint64_t until) REQUIRES(k_.mutex_) {
    const std::uint64_t dt = until - k_.time_;
    for (std::uint32_t c = 0; c < k_.machine_.count; ++c) {
      Engine& e = k_.engines_[c];
      if (e.switching) {
        e.switch_ns += dt;
        e.busy.add(k_.time_, until);
      } else if (e.running != nullptr) {
        Account& account = *e.running->client->accounts[c];
        e.running->remaining_ns -= dt;
        account.gpu_ns += dt;
        account.group->gpu_ns += dt;
        account.history.add(k_.time_, until);
        e.gpu_ns += dt;
        e.busy.add(k_.time_, until);
      }
      if (e.copying != nullptr) {
        e.copying->remaining_ns -= dt;
        e.copying->client->accounts[c]->copy_ns += dt;
        e.copy_busy.add(k_.time_, until);
      }
    }
    k_.time_ = until;
  }

  void finish_due() REQUIRES(k_.mutex_) {
    for (std::uint32_t c = 0; c < k_.machine_.count; ++c) {
      Engine& e = k_.engines_[c];
      if (!e.switching && e.running != nullptr && e.running->remaining_ns == 0) {
        e.running->client->accounts[c]->launches += e.running->front().target;
        complete(*e.running);
        e.running = nullptr;
      }
      if (e.copying != nullptr && e.copying->remaining_ns == 0) {
        Stream* done = e.copying;
        e.copying = nullptr;
        complete(*done);
      }
    }
  }

  Kernel& k_;
  const std::uint64_t now_;
};

// Not analysed: the caller holds the lock, but the compiler does not see that the Timeline's kernel is this one.
void Kernel::advance(std::uint64_t now) NO_THREAD_SAFETY_ANALYSIS {
  if (now > time_) Timeline(*this, now).play();
}

}  // namespace carve::sim
