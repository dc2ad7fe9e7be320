#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// A YAML document as the JSON that kubectl sends, and what JSON does not keep of it.
struct YamlTree {
  boost::json::value value;
  std::map<std::string, std::size_t> lines;  // of every value, from 1, by its JSON pointer
  std::map<std::string, std::string> plain;  // numbers, booleans and nulls as they are written, by JSON pointer
  std::vector<std::string> twice;            // JSON pointers of keys that a mapping has twice; the last one counts
  std::vector<std::string> commented;        // JSON pointers of values that lost a // comment

  /// The line of the value, or of the innermost value around it that has one.
  [[nodiscard]] std::size_t line(std::string pointer) const;
};

/// Parses one document. Plain words are typed as kubectl does it: yes, no, on and off are booleans, 0644 is octal. In a
/// Pod's metadata and resources, and in Elastic GPU's objects, the rest of a plain value after " //" is a comment:
/// published samples have such comments, although YAML does not.
///   errors  kInvalidArgument: not YAML (with the line), nested deeper than 64, or more than 100,000 values
[[nodiscard]] Result<YamlTree> parse_yaml(std::string_view text);

/// The value as YAML in block style. Text is quoted where it could be read as something else.
[[nodiscard]] std::string yaml_text(const boost::json::value& value);

}  // namespace carve::codec
