#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "port/kube_api.h"

namespace carve::plugins {

/// A small API server for the tests of this folder: objects by path, a switch that makes it unreachable, a list of all
/// writes, and watches that the test feeds. It does not parse what it stores.
class SmallKube final : public KubeApi {
 public:
  Result<std::string> get(const std::string& path, const Query&) override {
    const std::lock_guard lock(mutex_);
    ++gets;
    if (away) return fail(Code::kUnavailable, "connection refused");
    const auto found = objects.find(path);
    if (found == objects.end()) return fail(Code::kNotFound, path + ": not found");
    return found->second;
  }
  Result<std::vector<std::string>> list(const std::string& path, const Query&) override {
    const std::lock_guard lock(mutex_);
    if (away) return fail(Code::kUnavailable, "connection refused");
    std::vector<std::string> all;
    for (const auto& [key, object] : objects) {
      if (key.starts_with(path + "/")) all.push_back(object);
    }
    return all;
  }
  Result<std::string> create(const std::string& path, const std::string& body) override {
    return written("create " + path, body);
  }
  Result<std::string> replace(const std::string& path, const std::string& body) override {
    return written("replace " + path, body);
  }
  Result<std::string> patch(const std::string& path, KubePatch, const std::string& body,
                            const Query&) override {
    return written("patch " + path, body);
  }
  Result<void> remove(const std::string& path, const std::string& body) override {
    const auto done = written("remove " + path, body);
    if (!done) return tl::unexpected(done.error());
    return {};
  }
  void watch(const std::string&, const Query&, const KubeSink& sink, const std::stop_token& stop) override {
    std::unique_lock lock(mutex_);
    std::size_t seen = 0;
    while (!stop.stop_requested()) {
      for (; seen < feed_.size(); ++seen) {
        const auto step = feed_[seen];
        lock.unlock();
        step(sink);
        lock.lock();
      }
      fed_.wait(lock, stop, [&] { return feed_.size() > seen; });
    }
  }
  /// Adds a step that every watch delivers, in order.
  void feed(std::function<void(const KubeSink&)> step) {
    {
      const std::lock_guard lock(mutex_);
      feed_.push_back(std::move(step));
    }
    fed_.notify_all();
  }
  /// Replaces the steps for watches that start from now on. No watch may run.
  void replace_feed(std::function<void(const KubeSink&)> step) {
    const std::lock_guard lock(mutex_);
    feed_ = {std::move(step)};
  }
  void set_away(bool is_away) {
    const std::lock_guard lock(mutex_);
    away = is_away;
  }
  void put(const std::string& path, const std::string& object) {
    const std::lock_guard lock(mutex_);
    objects[path] = object;
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> writes() const {
    const std::lock_guard lock(mutex_);
    return writes_;
  }

  std::map<std::string, std::string> objects;
  bool away = false;
  int gets = 0;
  std::function<std::string(const std::string& verb_and_path, const std::string& body)> answer;

 private:
  Result<std::string> written(const std::string& what, const std::string& body) {
    const std::lock_guard lock(mutex_);
    if (away) return fail(Code::kUnavailable, "connection refused");
    writes_.emplace_back(what, body);
    return answer ? answer(what, body) : body;
  }
  mutable std::mutex mutex_;
  std::condition_variable_any fed_;
  std::vector<std::function<void(const KubeSink&)>> feed_;
  std::vector<std::pair<std::string, std::string>> writes_;
};

}  // namespace carve::plugins
