#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

// Keys and X.509 certificates as PEM text: ECDSA P-256, SHA-256, random serial numbers. What holds a key is a secret:
// it is in no log and in no Error.
namespace carve::tls {

/// A certificate and the key that belongs to it.
struct Pair {
  std::string certificate;  // PEM
  std::string key;          // PEM, PKCS #8; a secret
  [[nodiscard]] bool empty() const { return certificate.empty() || key.empty(); }
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// From when until when a certificate says that it is good. Seconds.
struct Life {
  Clock::WallTime from;
  Clock::WallTime until;
  /// A clock may be behind the one that wrote `from`, but not by more than a day.
  [[nodiscard]] bool has(Clock::WallTime now) const { return from <= now + std::chrono::hours(24) && now < until; }
  /// The moment when `part` of `parts` of it are over.
  [[nodiscard]] Clock::WallTime at(int part, int parts) const { return from + (until - from) / parts * part; }
};

/// A new authority, which signs others and nothing else.
///   errors  kInternal: OpenSSL cannot
[[nodiscard]] Result<Pair> make_authority(const std::string& common_name, const Life& life);

/// What a certificate is for.
struct Purpose {
  std::string common_name;
  std::vector<std::string> dns_names;  // of a server; without any it is a client's
  friend bool operator==(const Purpose&, const Purpose&) = default;
};
/// A new key and its certificate.
///   errors  kInvalidArgument: the authority cannot be used; kInternal
[[nodiscard]] Result<Pair> issue(const Pair& authority, const Purpose& purpose, const Life& life);

struct Facts {
  Purpose purpose;
  Life life;
};
/// What the first certificate of a PEM text says.
///   errors  kInvalidArgument: there is none
[[nodiscard]] Result<Facts> facts_of(const std::string& certificate);
/// The certificates of a PEM text, one text each; what is none is skipped.
[[nodiscard]] std::vector<std::string> certificates_in(const std::string& pem);
[[nodiscard]] bool belongs(const std::string& certificate, const std::string& key);
/// By name and signature; times are not looked at.
[[nodiscard]] bool signed_by(const std::string& certificate, const std::string& authority);

[[nodiscard]] std::string to_base64(std::string_view bytes);
///   errors  kInvalidArgument: it is none
[[nodiscard]] Result<std::string> from_base64(std::string_view text);

}  // namespace carve::tls
