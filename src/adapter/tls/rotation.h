#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "adapter/tls/issuer.h"
#include "base/clock.h"
#include "base/result.h"

namespace carve::tls {

/// Everything that the Secret of `carve control` holds.
struct Kept {
  std::vector<std::string> authorities;  // PEM: the first one signs; the others are believed too
  std::string authority_key;             // of the first; a secret
  std::string next_key;  // of the one among them that will sign; empty: none is made yet; a secret
  Pair serving;
};

/// How long things are good for. A certificate is renewed after two thirds of its life. An authority gets its successor
/// after two thirds; the successor signs after five sixths, when everybody has had a sixth to hear of it; the old one
/// is believed until its end.
struct Lives {
  std::chrono::hours authority{24 * 3650};
  std::chrono::hours leaf{24 * 90};
};

/// Puts right what is missing, damaged, of another purpose or due. `changed` names what was made, for the log; empty:
/// nothing had to be.
///   errors  kInternal: OpenSSL cannot
[[nodiscard]] Result<void> renew(Kept& kept, const Purpose& serving, const Lives& lives, Clock::WallTime now,
                                 std::vector<std::string>* changed);

/// The same of a client's pair, below the authority that signs in `kept`.
[[nodiscard]] Result<void> renew_client(Pair& client, const Kept& kept, const Purpose& purpose, const Lives& lives,
                                        Clock::WallTime now, std::vector<std::string>* changed);

/// All authorities in one text.
[[nodiscard]] std::string bundle(const Kept& kept);

}  // namespace carve::tls
