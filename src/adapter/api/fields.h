#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace carve::api {

/// Reads typed members of one JSON object. It keeps the first error, which names the member. finish() returns that
/// error; it also refuses members that were not read, unless it is called with Unknown::kIgnored.
class Fields {
 public:
  Fields(const boost::json::value& value, std::string_view what);

  std::string text(std::string_view key, std::size_t max_length = 4096);
  std::uint64_t number(std::string_view key, std::uint64_t low = 0,
                       std::uint64_t high = std::numeric_limits<std::uint64_t>::max());
  std::int64_t integer(std::string_view key);
  double real(std::string_view key);
  bool flag(std::string_view key);
  Bytes bytes(std::string_view key) { return Bytes(number(key)); }
  std::vector<std::string> texts(std::string_view key, std::size_t max_count);
  /// The elements of an array; empty on an error.
  const boost::json::array& array(std::string_view key, std::size_t max_count);
  const boost::json::value& object(std::string_view key);
  [[nodiscard]] bool has(std::string_view key) const;
  void wrong(std::string_view key, std::string_view why);
  /// kIgnored: for views, which are only displayed: a newer agent may report members that this program does not know.
  /// kRefused: for requests and grants, which decide something.
  enum class Unknown : std::uint8_t { kRefused, kIgnored };
  Result<void> finish(Unknown unknown = Unknown::kRefused);

 private:
  const boost::json::value& take(std::string_view key);
  const boost::json::object* object_ = nullptr;
  std::string what_;
  std::string error_;
  std::vector<std::string_view> seen_;
};

}  // namespace carve::api
