#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

// The result type of the whole program. tl::expected instead of std::expected: the oldest supported compilers are g++
// 12 and clang 14 in C++20, which do not have the standard type. A later change to it is a change of one line here.
//
// Three ways to use it:
//   CARVE_TRY(auto x, f());            // return the error to the caller
//   auto r = f(); if (!r) { … r.error() … }
//   return fail(Code::kInvalidArgument, "memory: …");
namespace carve {

/// The sixteen canonical status codes (gRPC's numbers). One table maps an error to a process exit code, an HTTP status,
/// a Kubernetes reason and a retry class.
enum class Code : std::uint8_t {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

/// An error for a reader: `what` names the field, the value, the unit and the legal values.
struct Error {
  Code code = Code::kUnknown;
  std::string what;
};

template <class T = void>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(Code code, std::string what) {
  return tl::unexpected<Error>(Error{code, std::move(what)});
}

/// Appends an Error of kInvalidArgument to `errors`: one more fault of the input.
inline void add_invalid(std::vector<Error>& errors, std::string what) {
  errors.push_back(Error{Code::kInvalidArgument, std::move(what)});
}

/// Puts the calling layer's context before an error from a lower layer: "read slice 7: open: not found".
[[nodiscard]] inline tl::unexpected<Error> fail_in(std::string_view context, Error error) {
  error.what = std::string(context) + ": " + error.what;
  return tl::unexpected<Error>(std::move(error));
}

/// The code's name as a word ("invalid argument"), for messages.
std::string_view to_string(Code code);

/// An Error from errno: the matching code, and the text "context: strerror".
[[nodiscard]] Error errno_error(int err, std::string_view context);

}  // namespace carve

#define CARVE_CONCAT_INNER(a, b) a##b
#define CARVE_CONCAT(a, b) CARVE_CONCAT_INNER(a, b)
/// Evaluates `expression` (a Result<T>). Returns its error to the caller, or binds its value to `declaration`.
#define CARVE_TRY(declaration, expression)                                         \
  auto CARVE_CONCAT(carve_try_, __LINE__) = (expression);                          \
  if (!CARVE_CONCAT(carve_try_, __LINE__))                                         \
    return ::tl::unexpected<::carve::Error>(                                       \
        std::move(CARVE_CONCAT(carve_try_, __LINE__)).error());                    \
  declaration = std::move(*CARVE_CONCAT(carve_try_, __LINE__))
/// CARVE_TRY for Result<void>.
#define CARVE_TRY_VOID(expression)                                                 \
  if (auto carve_try_void = (expression); !carve_try_void)                         \
  return ::tl::unexpected<::carve::Error>(std::move(carve_try_void).error())
