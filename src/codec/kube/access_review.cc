#include "codec/kube/access_review.h"

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

json::array texts(const std::vector<std::string>& all) { return json::array(all.begin(), all.end()); }

std::vector<std::string> texts_in(const json::value* value) {
  std::vector<std::string> all;
  const auto* array = value == nullptr ? nullptr : value->if_array();
  if (array == nullptr) return all;
  for (const auto& one : *array) {
    if (one.is_string()) all.emplace_back(one.as_string());
  }
  return all;
}

bool truth_at(const json::value& value, std::string_view path) {
  const auto* found = json_read::at(value, path);
  return found != nullptr && found->is_bool() && found->as_bool();
}

}  // namespace

std::string token_review(std::string_view token) {
  return json::serialize(json::object{{"apiVersion", "authentication.k8s.io/v1"},
                                      {"kind", "TokenReview"},
                                      {"spec", json::object{{"token", json_read::json_text(token)}}}});
}

Result<KubeUser> parse_token_review(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "TokenReview"));
  if (json_read::text(value, "kind") != "TokenReview") return fail(Code::kInvalidArgument, "not a TokenReview");
  KubeUser user;
  user.name = json_read::text(value, "status.user.username");
  if (!truth_at(value, "status.authenticated") || user.name.empty())
    return fail(Code::kUnauthenticated, "the API server does not accept this token");
  user.uid = json_read::text(value, "status.user.uid");
  user.groups = texts_in(json_read::at(value, "status.user.groups"));
  const auto* extra = json_read::at(value, "status.user.extra");
  if (const auto* members = extra == nullptr ? nullptr : extra->if_object()) {
    for (const auto& [key, values] : *members) user.extra[std::string(key)] = texts_in(&values);
  }
  return user;
}

std::string access_review(const KubeUser& user, const KubeAction& action) {
  json::object extra;
  for (const auto& [key, values] : user.extra) extra[key] = texts(values);
  return json::serialize(
      json::object{{"apiVersion", "authorization.k8s.io/v1"},
                   {"kind", "SubjectAccessReview"},
                   {"spec", json::object{{"user", user.name},
                                         {"uid", user.uid},
                                         {"groups", texts(user.groups)},
                                         {"extra", std::move(extra)},
                                         {"resourceAttributes", json::object{{"verb", action.verb},
                                                                             {"group", action.group},
                                                                             {"resource", action.resource},
                                                                             {"namespace", action.namespace_name}}}}}});
}

Result<bool> parse_access_review(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "SubjectAccessReview"));
  if (json_read::text(value, "kind") != "SubjectAccessReview")
    return fail(Code::kInvalidArgument, "not a SubjectAccessReview");
  // An authorizer may deny what another one would allow.
  return truth_at(value, "status.allowed") && !truth_at(value, "status.denied");
}

}  // namespace carve::codec
