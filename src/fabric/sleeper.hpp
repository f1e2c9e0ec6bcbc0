// Who waits for something of several endpoints: makes them go on, and sleeps until one may have news.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace viaduct::fabric {

class Endpoint;

class Sleeper {
 public:
  void add(Endpoint& endpoint);
  void remove(Endpoint& endpoint);

  void progress();
  // Until look() says true or the time is up (-1: never). False: it is up.
  bool wait(int timeout_ms, const std::function<bool()>& look);
  void wake();

 private:
  std::mutex mutex_;
  std::vector<Endpoint*> endpoints_;
};

}  // namespace viaduct::fabric
