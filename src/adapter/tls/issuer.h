#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

// Keys and X.509 certificates as PEM text: ECDSA P-256, SHA-256, random serial numbers. A value that contains a key is
// a secret: no log line and no Error contains it.
namespace carve::tls {

/// A certificate and its key.
struct Pair {
  std::string certificate;  // PEM
  std::string key;          // PEM, PKCS #8; a secret
  [[nodiscard]] bool empty() const { return certificate.empty() || key.empty(); }
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// The validity of a certificate, with a resolution of seconds.
struct Life {
  Clock::WallTime from;
  Clock::WallTime until;
  /// True when `now` is in the validity. Accepts a clock that is up to 24 hours behind the one that wrote `from`.
  [[nodiscard]] bool has(Clock::WallTime now) const { return from <= now + std::chrono::hours(24) && now < until; }
  /// The time when `part` of `parts` of the validity have passed.
  [[nodiscard]] Clock::WallTime at(int part, int parts) const { return from + (until - from) / parts * part; }
};

/// A new authority, which may only sign other certificates.
///   errors  kInternal: OpenSSL failed
[[nodiscard]] Result<Pair> make_authority(const std::string& common_name, const Life& life);

/// What a certificate is for.
struct Purpose {
  std::string common_name;
  std::vector<std::string> dns_names;  // of a server; empty: a client certificate
  friend bool operator==(const Purpose&, const Purpose&) = default;
};
/// A new key and its certificate.
///   errors  kInvalidArgument: the authority cannot be used; kInternal
[[nodiscard]] Result<Pair> issue(const Pair& authority, const Purpose& purpose, const Life& life);

struct Facts {
  Purpose purpose;
  Life life;
};
/// Purpose and validity of the first certificate in a PEM text.
///   errors  kInvalidArgument: the text contains no certificate
[[nodiscard]] Result<Facts> facts_of(const std::string& certificate);
/// The certificates in a PEM text, one text each. Other content is skipped.
[[nodiscard]] std::vector<std::string> certificates_in(const std::string& pem);
[[nodiscard]] bool belongs(const std::string& certificate, const std::string& key);
/// True when `authority` has signed `certificate`, by name and signature. Does not check the validity.
[[nodiscard]] bool signed_by(const std::string& certificate, const std::string& authority);

[[nodiscard]] std::string to_base64(std::string_view bytes);
///   errors  kInvalidArgument: the text is not base64
[[nodiscard]] Result<std::string> from_base64(std::string_view text);

}  // namespace carve::tls
