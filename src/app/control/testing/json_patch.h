#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

// Applies a JSON patch as the API server does: RFC 6902's add, replace and remove. For tests.
namespace carve::control::testing {

namespace json = boost::json;

/// Takes the first word of a JSON pointer; `*rest` becomes the remainder.
inline std::string take_word(std::string_view* rest) {
  rest->remove_prefix(1);
  const auto end = rest->find('/');
  std::string word;
  const auto raw = rest->substr(0, end);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] == '~' && i + 1 < raw.size()) {
      word += raw[++i] == '1' ? '/' : '~';
    } else {
      word += raw[i];
    }
  }
  *rest = end == std::string_view::npos ? std::string_view() : rest->substr(end);
  return word;
}

/// False: the path does not exist, or the index is out of range. The API server would refuse the whole request.
inline bool apply_step(json::value& document, const json::object& step) {
  const auto operation = step.at("op").as_string();
  std::string_view rest = step.at("path").as_string();
  json::value* here = &document;
  while (true) {
    const std::string word = take_word(&rest);
    const bool last = rest.empty();
    if (auto* object = here->if_object()) {
      const bool there = object->contains(word);
      if (last && operation == "add") return (*object)[word] = step.at("value"), true;
      if (!there) return false;
      if (last && operation == "replace") return (*object)[word] = step.at("value"), true;
      if (last) return object->erase(word) == 1;
      here = &object->at(word);
    } else if (auto* array = here->if_array()) {
      if (last && operation == "add" && word == "-")
        return array->push_back(step.at("value")), true;
      if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos) return false;
      const auto index = std::stoul(word);
      if (index >= array->size()) return false;
      if (last && operation == "replace") return (*array)[index] = step.at("value"), true;
      if (last) return false;
      here = &(*array)[index];
    } else {
      return false;
    }
  }
}

inline bool apply_patch(json::value& document, std::string_view patch) {
  const json::value steps = json::parse(json::string_view(patch.data(), patch.size()));
  for (const auto& step : steps.as_array()) {
    if (!apply_step(document, step.as_object())) return false;
  }
  return true;
}

}  // namespace carve::control::testing
