#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/daemon/kernel.h"

// The socket in front of the kernel side: one thread, one epoll, one answer per request. Client input is never trusted:
// every number is checked where it is used.
namespace carve::sim {

class Server {
 public:
  Server(Kernel& kernel, std::string profile, std::string instance, Bell* bell, int bell_fd);

  /// Binds the socket; replaces a stale one and creates its folder. False with errno set when that fails.
  bool listen_at(const std::string& path);
  /// Serves until `stop_fd` is readable.
  void run(int stop_fd);

 private:
  void accept_client();
  void serve(int socket);
  void drop(int socket);
  void drop_all(const std::vector<int>& sockets);
  void hello(int socket, const Request& request);
  void dispatch(Client& client, const Request& request) REQUIRES(kernel_.mutex());
  void inject(Client& client, const Request& request, std::uint64_t now) REQUIRES(kernel_.mutex());
  Status injected(const Request& request) REQUIRES(kernel_.mutex());
  [[nodiscard]] bool parked(int socket);
  void unpark();
  void tell_watchers(const EventRecord& event) REQUIRES(kernel_.mutex());
  void query(Client& client, const Request& request, std::uint64_t now) REQUIRES(kernel_.mutex());

  Kernel& kernel_;
  std::string profile_;
  std::string instance_;
  Bell* bell_;
  int bell_fd_;
  int epoll_ = -1;
  int listen_ = -1;
  bool hangs_ = false;       // management calls get no answer
  bool gone_ = false;        // the driver cannot be opened
  std::vector<int> parked_;  // sockets with a request that waits for the end of the hang
};

}  // namespace carve::sim
