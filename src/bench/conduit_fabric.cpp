// A conduit over a provider of libfabric: reliable datagram endpoints through the public interface, polled, with the
// settings that the library has by default. Built where its headers are; the library itself is looked for at run time.
#include "bench/conduit.hpp"

#if __has_include(<rdma/fabric.h>)

#include <dlfcn.h>
#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "bench/copy_buffers.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint32_t kVersion = FI_VERSION(1, 9);

struct Library {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;

  bool load() {
    void* const library = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    return find(getinfo, "fi_getinfo") && find(dupinfo, "fi_dupinfo") && find(freeinfo, "fi_freeinfo") &&
           find(fabric, "fi_fabric") && find(strerror, "fi_strerror");
  }

  // At an address of this host's, where that is not empty.
  fi_info* ask_for(const std::string& provider, const std::string& address = {}, const std::string& port = {}) const {
    fi_info* const hints = dupinfo(nullptr);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    fi_info* found = nullptr;
    if (address.empty()) {
      (void)getinfo(kVersion, nullptr, nullptr, 0, hints, &found);
    } else {
      hints->addr_format = FI_SOCKADDR_IN;
      (void)getinfo(kVersion, address.c_str(), port.c_str(), FI_SOURCE, hints, &found);
    }
    freeinfo(hints);
    return found;
  }
};

class FabricConduit final : public Conduit {
 public:
  FabricConduit(FabricOptions options, Meeting meeting, Memory buffer)
      : options_(std::move(options)), meeting_(std::move(meeting)), buffer_(std::move(buffer)) {}

  void open(Side side) override {
    meeting_.choose(side);
    const bool here = side == Side::here;
    if (options_.hosts) options_.hosts->enter(here);
    if (!library_.load() || (info_ = options_.hosts ? library_.ask_for(options_.provider, options_.hosts->of(here), "0")
                                                    : library_.ask_for(options_.provider)) == nullptr)
      give_up(fmt::format("libfabric has no provider {}", options_.provider));
    inject_ = info_->tx_attr->inject_size;
    check(library_.fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
    check(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
    check(fi_endpoint(domain_, info_, &endpoint_, nullptr), "fi_endpoint");
    fi_cq_attr queue{};
    queue.size = 4 * kWindow;
    queue.format = FI_CQ_FORMAT_CONTEXT;
    check(fi_cq_open(domain_, &queue, &sent_, nullptr), "fi_cq_open");
    check(fi_cq_open(domain_, &queue, &received_, nullptr), "fi_cq_open");
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    check(fi_av_open(domain_, &addresses, &addresses_, nullptr), "fi_av_open");
    check(fi_ep_bind(endpoint_, &sent_->fid, FI_TRANSMIT), "fi_ep_bind");
    check(fi_ep_bind(endpoint_, &received_->fid, FI_RECV), "fi_ep_bind");
    check(fi_ep_bind(endpoint_, &addresses_->fid, 0), "fi_ep_bind");
    check(fi_enable(endpoint_), "fi_enable");
    for (fi_context& context : contexts_) post_receive(&context);
    meet();
  }

  void close() override {
    for (fid* const each :
         {&endpoint_->fid, &addresses_->fid, &sent_->fid, &received_->fid, &domain_->fid, &fabric_->fid})
      (void)fi_close(each);
    library_.freeinfo(info_);
  }

  void send(std::size_t size) override {
    if (size <= inject_) return post([&] { return fi_inject(endpoint_, buffer_.data(), size, peer_); }, "fi_inject");
    while (under_way_ == kWindow) progress();
    fi_context* const context = &sends_[next_send_++ % kWindow];
    post([&] { return fi_send(endpoint_, buffer_.data(), size, nullptr, peer_, context); }, "fi_send");
    ++under_way_;
  }

  void receive(std::size_t) override {
    while (came_ == 0) progress();
    --came_;
    post_receive(nullptr);
  }

  void settle() override {
    while (under_way_ != 0) progress();
  }

 private:
  void check(long result, const char* what) const {
    if (result < 0) give_up(fmt::format("libfabric: {}: {}", what, library_.strerror(static_cast<int>(-result))));
  }
  template <class Post>
  void post(Post&& post, const char* what) {
    for (;;) {
      const ssize_t result = post();
      if (result == 0) return;
      if (result != -FI_EAGAIN) check(result, what);
      progress();
    }
  }

  // Every end has a place for each message that may be under way; null: the one that was just used.
  void post_receive(fi_context* context) {
    if (context == nullptr) context = &contexts_[next_receive_++ % kReceives];
    post([&] { return fi_recv(endpoint_, buffer_.data(), kMostBytes, nullptr, FI_ADDR_UNSPEC, context); }, "fi_recv");
  }

  void meet() {
    char mine[256] = {}, theirs[256] = {};
    std::size_t length = sizeof mine;
    check(fi_getname(&endpoint_->fid, mine, &length), "fi_getname");
    meeting_.tell(mine, sizeof mine);
    meeting_.hear(theirs, sizeof theirs);
    if (fi_av_insert(addresses_, theirs, 1, &peer_, 0, nullptr) != 1) give_up("libfabric: fi_av_insert");
    meeting_.tell("!", 1);  // nobody sends before both know each other
    char token;
    meeting_.hear(&token, 1);
  }

  void progress() {
    fi_cq_entry entries[16];
    const ssize_t received = fi_cq_read(received_, entries, 16);
    if (received > 0) came_ += static_cast<std::uint32_t>(received);
    if (received < 0 && received != -FI_EAGAIN) check(received, "fi_cq_read");
    if (under_way_ == 0) return;
    const ssize_t sent = fi_cq_read(sent_, entries, 16);
    if (sent > 0) under_way_ -= static_cast<std::uint32_t>(sent);
    if (sent < 0 && sent != -FI_EAGAIN) check(sent, "fi_cq_read");
  }

  static constexpr std::uint32_t kReceives = 2 * kWindow;

  const FabricOptions options_;
  Meeting meeting_;
  Memory buffer_;
  Library library_;
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  fid_cq* sent_ = nullptr;
  fid_cq* received_ = nullptr;
  fid_av* addresses_ = nullptr;
  fi_addr_t peer_ = 0;
  std::size_t inject_ = 0;
  fi_context sends_[kWindow] = {};
  fi_context contexts_[kReceives] = {};
  std::uint32_t next_send_ = 0;
  std::uint32_t next_receive_ = 0;
  std::uint32_t under_way_ = 0;
  std::uint32_t came_ = 0;
};

// In a child: the library keeps state that a fork would take along.
bool has_provider(const std::string& name) {
  const pid_t child = ::fork();
  if (child == 0) {
    Library library;
    ::_exit(library.load() && library.ask_for(name) != nullptr ? 0 : 1);
  }
  int status = 1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

Status look_for_fabric(const std::string& provider) {
  void* const library = ::dlopen("libfabric.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return Error(ENOENT, "libfabric.so.1 is not installed (Debian: libfabric1)");
  ::dlclose(library);
  if (!has_provider(provider)) return Error(ENODEV, "this libfabric has no provider " + provider);
  return {};
}

Result<std::unique_ptr<Conduit>> make_fabric(const FabricOptions& options) {
  VIADUCT_CHECK(look_for_fabric(options.provider));
  Meeting meeting;
  VIADUCT_CHECK(meeting.prepare());
  VIADUCT_TRY(Memory buffer, Memory::make(Conduit::kMostBytes));
  return std::unique_ptr<Conduit>(std::make_unique<FabricConduit>(options, std::move(meeting), std::move(buffer)));
}

}  // namespace viaduct::bench

#else

namespace viaduct::bench {

Status look_for_fabric(const std::string&) {
  return Error(ENOSYS, "built without libfabric's headers (Debian: libfabric-dev)");
}

Result<std::unique_ptr<Conduit>> make_fabric(const FabricOptions& options) {
  return look_for_fabric(options.provider).error();
}

}  // namespace viaduct::bench

#endif
