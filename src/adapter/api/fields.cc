#include "adapter/api/fields.h"

#include <algorithm>

namespace carve::api {
namespace {
const boost::json::value kNull;
const boost::json::array kNothing;
}  // namespace

Fields::Fields(const boost::json::value& value, std::string_view what)
    : object_(value.if_object()), what_(what) {
  if (object_ == nullptr) error_ = what_ + ": not an object";
}

bool Fields::has(std::string_view key) const { return object_ != nullptr && object_->contains(key); }

void Fields::wrong(std::string_view key, std::string_view why) {
  if (error_.empty()) error_ = what_ + ": \"" + std::string(key) + "\": " + std::string(why);
}

const boost::json::value& Fields::take(std::string_view key) {
  if (object_ == nullptr) return kNull;
  seen_.push_back(key);
  const auto* found = object_->if_contains(key);
  if (found == nullptr) {
    wrong(key, "missing");
    return kNull;
  }
  return *found;
}

std::string Fields::text(std::string_view key, std::size_t max_length) {
  const auto* text = take(key).if_string();
  if (text == nullptr) {
    wrong(key, "not a string");
    return {};
  }
  if (text->size() > max_length) wrong(key, "longer than " + std::to_string(max_length) + " bytes");
  return std::string(text->c_str(), text->size());
}

std::uint64_t Fields::number(std::string_view key, std::uint64_t low, std::uint64_t high) {
  const auto& value = take(key);
  std::uint64_t number = 0;
  if (const auto* u = value.if_uint64()) {
    number = *u;
  } else if (const auto* i = value.if_int64(); i != nullptr && *i >= 0) {
    number = static_cast<std::uint64_t>(*i);
  } else {
    wrong(key, "not a non-negative integer");
    return low;
  }
  if (number < low || number > high) {
    wrong(key,
          std::to_string(number) + " is not between " + std::to_string(low) + " and " + std::to_string(high));
    return low;
  }
  return number;
}

std::int64_t Fields::integer(std::string_view key) {
  const auto& value = take(key);
  if (const auto* i = value.if_int64()) return *i;
  if (const auto* u = value.if_uint64(); u != nullptr && *u <= static_cast<std::uint64_t>(INT64_MAX)) {
    return static_cast<std::int64_t>(*u);
  }
  wrong(key, "not an integer");
  return 0;
}

double Fields::real(std::string_view key) {
  const auto& value = take(key);
  if (const auto* d = value.if_double()) return *d;
  if (const auto* i = value.if_int64()) return static_cast<double>(*i);
  if (const auto* u = value.if_uint64()) return static_cast<double>(*u);
  wrong(key, "not a number");
  return 0;
}

bool Fields::flag(std::string_view key) {
  const auto* value = take(key).if_bool();
  if (value == nullptr) {
    wrong(key, "neither true nor false");
    return false;
  }
  return *value;
}

const boost::json::array& Fields::array(std::string_view key, std::size_t max_count) {
  const auto* array = take(key).if_array();
  if (array == nullptr) {
    wrong(key, "not a list");
    return kNothing;
  }
  if (array->size() > max_count) {
    wrong(key, "more than " + std::to_string(max_count) + " entries");
    return kNothing;
  }
  return *array;
}

std::vector<std::string> Fields::texts(std::string_view key, std::size_t max_count) {
  std::vector<std::string> texts;
  for (const auto& value : array(key, max_count)) {
    const auto* text = value.if_string();
    if (text == nullptr || text->size() > 4096) {
      wrong(key, "an entry is not a string, or longer than 4096 bytes");
      return {};
    }
    texts.emplace_back(text->c_str(), text->size());
  }
  return texts;
}

const boost::json::value& Fields::object(std::string_view key) {
  const auto& value = take(key);
  if (!value.is_object()) wrong(key, "not an object");
  return value;
}

Result<void> Fields::finish(Unknown unknown) {
  if (error_.empty() && unknown == Unknown::kRefused) {
    for (const auto& member : *object_) {
      if (std::find(seen_.begin(), seen_.end(), std::string_view(member.key())) == seen_.end()) {
        wrong(member.key(), "unknown");
        break;
      }
    }
  }
  if (!error_.empty()) return fail(Code::kInvalidArgument, error_);
  return {};
}

}  // namespace carve::api
