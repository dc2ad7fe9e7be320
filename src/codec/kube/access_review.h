#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The API server's answers to "whose token is this?" (TokenReview) and "may this user do that?" (SubjectAccessReview).
namespace carve::codec {

inline constexpr const char* kTokenReviews = "/apis/authentication.k8s.io/v1/tokenreviews";
inline constexpr const char* kAccessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A user as the API server knows it.
struct KubeUser {
  std::string name;
  std::string uid;
  std::vector<std::string> groups;
  std::map<std::string, std::vector<std::string>> extra;
  bool operator==(const KubeUser&) const = default;
};

/// What a user wants to do with all objects of a resource.
struct KubeAction {
  std::string verb;
  std::string group;  // empty: the core group
  std::string resource;
  std::string namespace_name;  // empty: in all namespaces
};

[[nodiscard]] std::string token_review(std::string_view token);
/// The user of a TokenReview's answer.
///   errors  kUnauthenticated: the token is not valid; kInvalidArgument: not a TokenReview
[[nodiscard]] Result<KubeUser> parse_token_review(std::string_view text);

[[nodiscard]] std::string access_review(const KubeUser& user, const KubeAction& action);
/// Whether a SubjectAccessReview's answer allows the action.
///   errors  kInvalidArgument: not a SubjectAccessReview
[[nodiscard]] Result<bool> parse_access_review(std::string_view text);

}  // namespace carve::codec
