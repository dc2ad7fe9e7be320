#include "adapter/kubelet/services.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

// The generated services on a test socket, with a client that disconnects when the test requests it.
namespace carve::kubelet {
namespace {

/// A list that is created as slowly as the test requests.
class SlowSlots final : public SlotCalls {
 public:
  [[nodiscard]] std::vector<SlotDevice> list() const override {
    std::unique_lock lock(mutex_);
    asked_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    return {{"slot-0000", true}};
  }
  Result<std::string> allocate(const std::vector<std::string>&) override { return fail(Code::kUnavailable, "none"); }
  void before_start(const std::vector<std::string>&, Answer answer) override { answer({}); }

  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    asked_ = false;
    changed_.notify_all();
  }
  void wait_until_asked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool asked_ = false;
  bool held_ = false;
};

/// Counts the streams that the service has ended, and the lists that it sent on an ended stream.
class Sent final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo*) override {
    return new Stream(*this);  // gRPC owns it
  }
  void wait_for_ends(int count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ends_ >= count; }));
  }
  [[nodiscard]] int after_the_end() {
    const std::lock_guard lock(mutex_);
    return after_;
  }

 private:
  using Point = grpc::experimental::InterceptionHookPoints;
  class Stream final : public grpc::experimental::Interceptor {
   public:
    explicit Stream(Sent& sent) : sent_(sent) {}
    void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
      {
        const std::lock_guard lock(sent_.mutex_);
        if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE) && ended_) ++sent_.after_;
        if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
          ended_ = true;
          ++sent_.ends_;
          sent_.changed_.notify_all();
        }
      }
      methods->Proceed();
    }

   private:
    Sent& sent_;
    bool ended_ = false;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  int ends_ = 0, after_ = 0;
};

TEST(Streams, DoesNotSendAListThatWasCreatedWhileTheKubeletDisconnected) {
  char folder[] = "/tmp/carve-streams-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string address = "unix:" + std::string(folder) + "/s";
  SlowSlots slots;
  Workers workers(ThreadName("test"), 1);
  SlotService service(slots, workers);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  auto factory = std::make_unique<Sent>();
  Sent& sent = *factory;
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::move(factory));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  const auto server = builder.BuildAndStart();
  ASSERT_TRUE(server);
  const auto stub = v1beta1::DevicePlugin::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));

  for (int round = 0; round < 5; ++round) {
    grpc::ClientContext context;
    const auto reader = stub->ListAndWatch(&context, {});
    v1beta1::ListAndWatchResponse list;
    ASSERT_TRUE(reader->Read(&list));
    slots.hold(true);
    std::thread change([&] { service.lists().changed(); });
    slots.wait_until_asked();
    context.TryCancel();
    while (reader->Read(&list)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    sent.wait_for_ends(round + 1);  // the server has noticed it and ended the stream
    slots.hold(false);
    change.join();
    for (int i = 0; i < 5000 && service.lists().any(); ++i) usleep(1000);
    EXPECT_FALSE(service.lists().any()) << "round " << round;
    EXPECT_EQ(sent.after_the_end(), 0) << "round " << round;
  }
  service.lists().close();
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  unlink((std::string(folder) + "/s").c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace carve::kubelet
