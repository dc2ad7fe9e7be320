#include "app/plugins/claimed_cards.h"

#include "codec/claims/elastic_objects.h"

namespace carve::plugins {

void ClaimedCards::run(const std::stop_token& stop) {
  KubeSink sink;
  sink.replace = [this](const std::vector<std::string>& objects) { replace(objects); };
  sink.change = [this](const KubeChange& one) { change(one); };
  sink.trouble = [this](const Error& error) {
    // An earlier version of the CRD has no field selector, and a cluster without control has no CRD.
    if (error.code == Code::kNotFound || error.code == Code::kInvalidArgument) replace({});
  };
  api_.watch(std::string(codec::kElasticGpus), {{"fieldSelector", "status.node=" + node_}}, sink, stop);
}

void ClaimedCards::learn(const std::string& object) {
  const auto room = codec::parse_elastic_room(object);
  if (!room) return;
  if (room->kept && room->node == node_ && !room->cards.empty()) {
    cards_.insert_or_assign(room->name, room->cards);
  } else {
    cards_.erase(room->name);
  }
}

void ClaimedCards::replace(const std::vector<std::string>& objects) {
  const MutexLock lock(mutex_);
  cards_.clear();
  for (const auto& object : objects) learn(object);
  synced_ = true;
}

void ClaimedCards::change(const KubeChange& change) {
  const MutexLock lock(mutex_);
  if (change.kind == KubeChange::Kind::kPut) return learn(change.object);
  if (const auto room = codec::parse_elastic_room(change.object)) cards_.erase(room->name);
}

std::set<CardId> ClaimedCards::cards() const {
  const MutexLock lock(mutex_);
  std::set<CardId> all;
  for (const auto& [name, cards] : cards_) all.insert(cards.begin(), cards.end());
  return all;
}

bool ClaimedCards::synced() const {
  const MutexLock lock(mutex_);
  return synced_;
}

}  // namespace carve::plugins
