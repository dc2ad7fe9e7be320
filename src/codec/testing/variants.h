#pragma once

#include <functional>
#include <string>
#include <string_view>

// Inputs that differ from a complete one in one place each, for tests of readers. The same input gives the same
// variants in the same order.
namespace carve::codec {

/// The document; then, for each value in it: without it, with it twice (in an array), and with another value instead:
/// of every other type, empty, a little smaller or larger, misspelled, too long. Then with an unknown member in each
/// object.
///   cost  about 25 calls for each value in the document
void each_variant_of_json(std::string_view document, const std::function<void(const std::string&)>& use);

/// The text; then without each line, with each line twice, without each of its words (which end at white space, = , : ;
/// and /), with each word or number changed in the same ways, and cut at each word.
void each_variant_of_text(std::string_view text, const std::function<void(const std::string&)>& use);

}  // namespace carve::codec
