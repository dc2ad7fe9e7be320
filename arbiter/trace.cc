#include "arbiter/trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace carve::arbiter {
namespace {

constexpr char kHeader[8] = {'C', 'A', 'R', 'V', 'T', 'R', 'C', '3'};
enum class Kind : std::uint32_t { kAdd = 1, kRemove = 2, kChange = 3, kStep = 4 };

// Every byte of a record is a named field, because padding would make equal records differ on disk.
struct TermsRecord {
  std::uint32_t compute;
  std::uint32_t share;
  std::uint32_t priority;
  std::uint32_t ceiling;
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
  return {terms.compute, static_cast<std::uint32_t>(terms.share), static_cast<std::uint32_t>(terms.priority),
          terms.ceiling};
}
lease::Terms terms_of(const TermsRecord& r) {
  return {r.compute, static_cast<abi::ShareClass>(r.share), static_cast<abi::PriorityClass>(r.priority), r.ceiling};
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

bool legal(const TermsRecord& r) {
  return r.compute <= 100 && r.ceiling <= 100 && r.share <= static_cast<std::uint32_t>(abi::ShareClass::kBestEffort) &&
         r.priority <= static_cast<std::uint32_t>(abi::PriorityClass::kOffline);
}

tl::unexpected<Error> corrupt(std::string what) { return fail(Code::kDataLoss, std::move(what)); }

class Player {
 public:
  explicit Player(std::int64_t alter_step) : alter_step_(alter_step) {}

  /// False: the file ends before the record does.
  ///   errors  kDataLoss: no arbiter writes this record
  Result<bool> play(std::FILE* file) {
    Kind kind{};
    if (!get(file, &kind)) return false;
    switch (kind) {
      case Kind::kAdd: return add(file);
      case Kind::kRemove: return remove(file);
      case Kind::kChange: return change(file);
      case Kind::kStep: return step(file);
    }
    return corrupt(fmt::format("unknown kind of record: {}", static_cast<std::uint32_t>(kind)));
  }

  [[nodiscard]] const Replayed& result() const { return result_; }

 private:
  Result<bool> add(std::FILE* file) {
    std::int32_t slice = 0;
    TermsRecord terms{};
    if (!get(file, &slice) || !get(file, &terms)) return false;
    if (!legal(terms)) return corrupt("a slice with illegal terms");
    const int number = arbiter_->add(terms_of(terms));
    if (number != slice) return corrupt(fmt::format("slice {} is added where {} is the next number", slice, number));
    return true;
  }
  Result<bool> remove(std::FILE* file) {
    std::int32_t slice = 0;
    if (!get(file, &slice)) return false;
    if (!exists(slice)) return corrupt(fmt::format("slice {} is removed and does not exist", slice));
    arbiter_->remove(slice);
    return true;
  }
  Result<bool> change(std::FILE* file) {
    std::int32_t slice = 0;
    TermsRecord terms{};
    if (!get(file, &slice) || !get(file, &terms)) return false;
    if (!exists(slice)) return corrupt(fmt::format("slice {} is changed and does not exist", slice));
    if (!legal(terms)) return corrupt("a slice with illegal terms");
    arbiter_->set_terms(slice, terms_of(terms));
    return true;
  }
  [[nodiscard]] bool exists(std::int32_t slice) const {
    return slice >= 0 && slice < arbiter_->slices_end() && arbiter_->is_used(slice);
  }
  Result<bool> step(std::FILE* file) {
    std::uint64_t now = 0;
    std::uint32_t count = 0;
    if (!get(file, &now) || !get(file, &count)) return false;
    if (count != static_cast<std::uint32_t>(arbiter_->slices_end()))
      return corrupt(fmt::format("a step with {} slices where there are {}", count, arbiter_->slices_end()));
    std::vector<SliceRecord> recorded(count);
    std::vector<lease::Observation> seen(lease::kMaxSlices);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!get(file, &recorded[i])) return false;
      const SliceRecord& r = recorded[i];
      if ((r.used != 0) != arbiter_->is_used(static_cast<int>(i)))
        return corrupt(fmt::format("a step in which slice {} {}", i, r.used != 0 ? "does not exist" : "is missing"));
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

void Trace::Close::operator()(std::FILE* file) const {
  const bool failed = std::ferror(file) != 0;
  const int before = errno;  // of the failed write
  const bool closed = std::fclose(file) == 0;
  if (closed && !failed) return;
  log->error("the trace of the decisions is incomplete", {{"error", std::strerror(failed ? before : errno)}});
}

Result<Trace> Trace::create(const std::string& path, Log& log) {
  Trace trace;
  if (path.empty()) return trace;
  trace.file_ = {std::fopen(path.c_str(), "wbe"), Close{&log}};
  if (!trace.file_) return tl::unexpected(errno_error(errno, "create trace " + path));
  trace.put(kHeader);
  return trace;
}

template <class T>
void Trace::put(const T& value) {
  if (file_ && std::fwrite(&value, sizeof value, 1, file_.get()) != 1) file_.reset();
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
  long complete = sizeof kHeader;
  while (true) {
    const auto played = player.play(file.get());
    if (!played) return fail_in(fmt::format("trace {}: record at byte {}", path, complete), played.error());
    if (!*played) break;
    complete = std::ftell(file.get());
  }
  if (std::ferror(file.get()) != 0) return tl::unexpected(errno_error(errno, "read trace " + path));
  Replayed result = player.result();
  if (std::ftell(file.get()) != complete) result.truncated_at = static_cast<std::uint64_t>(complete);
  return result;
}

}  // namespace carve::arbiter
