#include "adapter/tls/rotation.h"

#include <algorithm>
#include <utility>

namespace carve::tls {
namespace {

// Certificates are valid from 10 minutes before now, because the clocks in a cluster may differ by minutes.
constexpr std::chrono::minutes kSkew{10};

Life life_from(Clock::WallTime now, std::chrono::hours length) { return {now - kSkew, now + length}; }

/// The name of an authority. It contains the time of creation, which distinguishes two generations.
std::string authority_name(Clock::WallTime now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  return "carve-control authority " + std::to_string(seconds);
}

Life life_of(const std::string& certificate) {
  const auto facts = facts_of(certificate);
  return facts ? facts->life : Life{};
}

std::size_t place_of_next(const Kept& kept) {
  for (std::size_t i = 1; i < kept.authorities.size() && !kept.next_key.empty(); ++i) {
    if (belongs(kept.authorities[i], kept.next_key)) return i;
  }
  return 0;
}

Result<void> renew_authority(Kept& kept, const Lives& lives, Clock::WallTime now, std::vector<std::string>* changed) {
  const auto before = kept.authorities.size();
  const bool signs = !kept.authorities.empty() && belongs(kept.authorities[0], kept.authority_key) &&
                     life_of(kept.authorities[0]).has(now);
  // The first authority is never removed here; whether it can sign is checked below.
  if (!kept.authorities.empty()) {
    kept.authorities.erase(std::remove_if(kept.authorities.begin() + 1, kept.authorities.end(),
                                          [now](const auto& one) { return !life_of(one).has(now); }),
                           kept.authorities.end());
  }
  if (kept.authorities.size() != before) changed->emplace_back("an expired authority was removed");
  if (place_of_next(kept) == 0 && !kept.next_key.empty()) {
    kept.next_key.clear();
    changed->emplace_back("the key of a missing successor was removed");
  }
  const auto next = place_of_next(kept);
  if (next != 0 && (!signs || now >= life_of(kept.authorities[0]).at(5, 6))) {
    std::swap(kept.authorities[0], kept.authorities[next]);
    if (!life_of(kept.authorities[next]).has(now))
      kept.authorities.erase(kept.authorities.begin() + static_cast<std::ptrdiff_t>(next));
    kept.authority_key = std::exchange(kept.next_key, {});
    changed->emplace_back("the authority's successor signs");
    return {};
  }
  if (!signs) {
    CARVE_TRY(auto made, make_authority(authority_name(now), life_from(now, lives.authority)));
    // An authority without a usable key stays trusted until it expires, because clients may verify with it.
    std::erase_if(kept.authorities, [now](const auto& one) { return !life_of(one).has(now); });
    kept.authorities.insert(kept.authorities.begin(), std::move(made.certificate));
    kept.authority_key = std::move(made.key);
    kept.next_key.clear();
    changed->emplace_back("authority");
  } else if (next == 0 && now >= life_of(kept.authorities[0]).at(2, 3)) {
    CARVE_TRY(auto made, make_authority(authority_name(now), life_from(now, lives.authority)));
    kept.authorities.push_back(std::move(made.certificate));
    kept.next_key = std::move(made.key);
    changed->emplace_back("the authority's successor");
  }
  return {};
}

Result<void> renew_leaf(Pair& leaf, const Kept& kept, const Purpose& purpose, const Lives& lives, Clock::WallTime now,
                        const char* what, std::vector<std::string>* changed) {
  const auto facts = facts_of(leaf.certificate);
  const bool good = facts && facts->purpose == purpose && facts->life.has(now) && now < facts->life.at(2, 3) &&
                    belongs(leaf.certificate, leaf.key) && signed_by(leaf.certificate, kept.authorities[0]);
  if (good) return {};
  auto life = life_from(now, lives.leaf);
  life.until = std::min(life.until, life_of(kept.authorities[0]).until);
  CARVE_TRY(leaf, issue({kept.authorities[0], kept.authority_key}, purpose, life));
  changed->emplace_back(what);
  return {};
}

}  // namespace

Result<void> renew(Kept& kept, const Purpose& serving, const Lives& lives, Clock::WallTime now,
                   std::vector<std::string>* changed) {
  CARVE_TRY_VOID(renew_authority(kept, lives, now, changed));
  return renew_leaf(kept.serving, kept, serving, lives, now, "serving certificate", changed);
}

Result<void> renew_client(Pair& client, const Kept& kept, const Purpose& purpose, const Lives& lives,
                          Clock::WallTime now, std::vector<std::string>* changed) {
  if (kept.authorities.empty()) return fail(Code::kInternal, "there is no authority to sign with");
  return renew_leaf(client, kept, purpose, lives, now, "client certificate", changed);
}

std::string bundle(const Kept& kept) {
  std::string all;
  for (const auto& one : kept.authorities) all += one;
  return all;
}

}  // namespace carve::tls
