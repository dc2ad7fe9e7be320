#include "arbiter/trace.h"

#include <cerrno>
#include <cstring>
#include <vector>

namespace carve::arbiter {
namespace {

constexpr char kHeader[8] = {'C', 'A', 'R', 'V', 'T', 'R', 'C', '2'};
enum class Kind : std::uint32_t { kAdd = 1, kRemove = 2, kChange = 3, kStep = 4 };

// Every byte of a record is a named field, because padding would make equal records differ on disk.
struct TermsRecord {
  std::uint32_t compute;
  std::uint32_t share;
  std::uint32_t priority;
};
struct SliceRecord {
  std::uint64_t inflight_ns;
  std::uint64_t edge_ns;
  std::uint64_t busy_ns;
  std::uint64_t end_ns;
  std::uint32_t want_busy;
  std::uint32_t mode;
  std::uint32_t credit_us;
  std::uint32_t rate_ppm;
  std::uint32_t epoch;
  std::uint32_t used;
  std::uint32_t processes;
  std::uint32_t reserved;
};

TermsRecord record_of(const lease::Terms& terms) {
  return {terms.compute, static_cast<std::uint32_t>(terms.share), static_cast<std::uint32_t>(terms.priority)};
}
lease::Terms terms_of(const TermsRecord& r) {
  return {r.compute, static_cast<abi::ShareClass>(r.share), static_cast<abi::PriorityClass>(r.priority)};
}

SliceRecord record_of(const lease::Observation& seen, const lease::Grant& grant, bool used) {
  return {seen.inflight_ns, seen.edge_ns, seen.busy_ns, grant.end_ns,
          (seen.want ? 1U : 0U) | (seen.busy ? 2U : 0U), static_cast<std::uint32_t>(grant.mode), grant.credit_us,
          grant.rate_ppm, grant.epoch, used ? 1U : 0U, seen.processes, 0};
}

bool same_decision(const SliceRecord& a, const SliceRecord& b) {
  return a.end_ns == b.end_ns && a.mode == b.mode && a.credit_us == b.credit_us && a.rate_ppm == b.rate_ppm &&
         a.epoch == b.epoch;
}

template <class T>
bool get(std::FILE* file, T* value) {
  return std::fread(value, sizeof *value, 1, file) == 1;
}

class Player {
 public:
  explicit Player(std::int64_t alter_step) : alter_step_(alter_step) {}

  /// False: the record is cut, like the last record of a writer that was killed.
  bool play(std::FILE* file, Kind kind) {
    std::int32_t slice = 0;
    TermsRecord terms{};
    if (kind == Kind::kStep) return step(file);
    if (!get(file, &slice) || (kind != Kind::kRemove && !get(file, &terms))) return false;
    if (kind == Kind::kAdd) arbiter_->add(terms_of(terms));
    if (kind == Kind::kRemove) arbiter_->remove(slice);
    if (kind == Kind::kChange) arbiter_->set_terms(slice, terms_of(terms));
    return true;
  }

  [[nodiscard]] const Replayed& result() const { return result_; }

 private:
  bool step(std::FILE* file) {
    std::uint64_t now = 0;
    std::uint32_t count = 0;
    if (!get(file, &now) || !get(file, &count) || count > lease::kMaxSlices) return false;
    std::vector<SliceRecord> recorded(count);
    std::vector<lease::Observation> seen(lease::kMaxSlices);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!get(file, &recorded[i])) return false;
      const SliceRecord& r = recorded[i];
      seen[i] = {(r.want_busy & 1) != 0, (r.want_busy & 2) != 0, r.inflight_ns, r.edge_ns, r.busy_ns,
                 r.processes};
    }
    const bool altered = static_cast<std::int64_t>(result_.steps++) == alter_step_;
    arbiter_->step(altered ? now + 3'000'000 : now, seen.data());
    int used = 0;
    before_.resize(lease::kMaxSlices);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (recorded[i].used == 0) continue;
      ++used;
      ++result_.decisions;
      result_.changes += same_decision(recorded[i], before_[i]) ? 0 : 1;
      const SliceRecord again = record_of(seen[i], arbiter_->grant(static_cast<int>(i)), true);
      result_.differ += same_decision(recorded[i], again) ? 0 : 1;
      before_[i] = recorded[i];
    }
    if (used > result_.most_slices) result_.most_slices = used;
    return true;
  }

  std::unique_ptr<lease::Arbiter> arbiter_ = std::make_unique<lease::Arbiter>();
  std::vector<SliceRecord> before_;
  std::int64_t alter_step_;
  Replayed result_;
};

}  // namespace

Result<Trace> Trace::create(const std::string& path) {
  Trace trace;
  if (path.empty()) return trace;
  trace.file_.reset(std::fopen(path.c_str(), "wbe"));
  if (!trace.file_) return tl::unexpected(errno_error(errno, "create trace " + path));
  trace.put(kHeader);
  return trace;
}

template <class T>
void Trace::put(const T& value) {
  if (file_) std::fwrite(&value, sizeof value, 1, file_.get());
}

void Trace::added(int slice, const lease::Terms& terms) {
  put(Kind::kAdd);
  put(std::int32_t{slice});
  put(record_of(terms));
}
void Trace::removed(int slice) {
  put(Kind::kRemove);
  put(std::int32_t{slice});
}
void Trace::changed(int slice, const lease::Terms& terms) {
  put(Kind::kChange);
  put(std::int32_t{slice});
  put(record_of(terms));
}
void Trace::stepped(std::uint64_t now, const lease::Arbiter& arbiter, const lease::Observation* seen) {
  if (!file_) return;
  put(Kind::kStep);
  put(now);
  put(static_cast<std::uint32_t>(arbiter.slices_end()));
  for (int i = 0; i < arbiter.slices_end(); ++i) put(record_of(seen[i], arbiter.grant(i), arbiter.is_used(i)));
}

Result<Replayed> replay(const std::string& path, std::int64_t alter_step) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!file) return tl::unexpected(errno_error(errno, "open trace " + path));
  char header[sizeof kHeader];
  if (!get(file.get(), &header) || std::memcmp(header, kHeader, sizeof header) != 0) {
    return fail(Code::kDataLoss, "trace " + path + ": not a trace of this version");
  }
  Player player(alter_step);
  Kind kind{};
  while (get(file.get(), &kind)) {
    if (kind < Kind::kAdd || kind > Kind::kStep)
      return fail(Code::kDataLoss, "trace " + path + ": unknown kind of record");
    if (!player.play(file.get(), kind)) break;
  }
  return player.result();
}

}  // namespace carve::arbiter
