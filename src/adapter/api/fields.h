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

/// Takes typed members out of one JSON object. The first thing that is wrong is kept, and says the member's
/// name; finish() also refuses members that nobody asked for, where it is not told to let them be.
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
  /// The array's elements; empty when it is wrong.
  const boost::json::array& array(std::string_view key, std::size_t max_count);
  const boost::json::value& object(std::string_view key);
  [[nodiscard]] bool has(std::string_view key) const;
  void wrong(std::string_view key, std::string_view why);
  /// kIgnored: for what is only shown. An agent of a newer version may say more of itself than this program knows; what
  /// decides something (requests, grants) is refused then.
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
