#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "adapter/tls/issuer.h"
#include "base/clock.h"
#include "base/result.h"

namespace carve::tls {

/// The content of the Secret of `carve control`.
struct Kept {
  std::vector<std::string> authorities;  // PEM: the first one signs; the others are trusted too
  std::string authority_key;             // key of the first; a secret
  std::string next_key;                  // key of the successor among them; empty: there is none yet; a secret
  Pair serving;
};

/// The validity of authorities and of other certificates. A certificate is renewed after two thirds of its validity.
/// The successor of an authority is created after two thirds of the authority's validity and signs from five sixths on,
/// so that all clients have one sixth of the validity to learn of it. The old authority is trusted until its end.
struct Lives {
  std::chrono::hours authority{24 * 3650};
  std::chrono::hours leaf{24 * 90};
};

/// Replaces what is missing, damaged, of another purpose or due for renewal. `changed` receives the names of the
/// changes for the log; it stays empty when there are none.
///   errors  kInternal: OpenSSL failed
[[nodiscard]] Result<void> renew(Kept& kept, const Purpose& serving, const Lives& lives, Clock::WallTime now,
                                 std::vector<std::string>* changed);

/// The same for a client's certificate, which the signing authority of `kept` signs.
[[nodiscard]] Result<void> renew_client(Pair& client, const Kept& kept, const Purpose& purpose, const Lives& lives,
                                        Clock::WallTime now, std::vector<std::string>* changed);

/// All authorities as one PEM text.
[[nodiscard]] std::string bundle(const Kept& kept);

}  // namespace carve::tls
