// `viaduct bench sockets-ftp`: files between two folders in memory, by an unmodified vsftpd and curl (SOVIA, table 5).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

class SocketsFtp {
 public:
  explicit SocketsFtp(const Options& options)
      : sockets_("sockets-ftp", "Files between RAM disks by vsftpd and curl, each on its processor", options) {}

  Result<Report> run() {
    if (const Status ready = prepare(); !ready.ok()) return sockets_.run_without("FTP", ready.error().message());
    for (const unsigned size : {14u, 64u})
      for (const bool up : {false, true}) {
        if (sockets_.quick() && size > 14) continue;
        const std::string name = fmt::format("{} MB, {}", size, up ? "to the server" : "from the server");
        sockets_.suite().add(
            {name, kFloor, Kind::floor, kBandwidth, "GB/s", Better::higher, [this, size] { return write_file(size); }});
        for (const auto& [who, kind, port] :
             {std::tuple{SocketsSuite::kTcp, Kind::peer, kernel_port_}, {SocketsSuite::kUs, Kind::us, our_port_}})
          sockets_.suite().add({name, who, kind, kBandwidth, "GB/s", Better::higher,
                                [this, accelerated = kind == Kind::us, port = port, size, up] {
                                  return transfer(port, accelerated, size, up);
                                }});
        sockets_.suite().expect({name, kBandwidth, SocketsSuite::kUs, SocketsSuite::kTcp, Better::higher, 2});
      }
    return sockets_.run(9);
  }

 private:
  Status prepare() {
    VIADUCT_TRY(vsftpd_, find_server_program("vsftpd", "vsftpd"));
    VIADUCT_TRY(curl_, find_server_program("curl", "curl"));
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    folder_ = std::make_unique<ScratchFolder>(std::move(folder));
    for (const unsigned size : {14u, 64u})
      VIADUCT_CHECK(folder_->write(fmt::format("{}", size), std::string(std::size_t{size} << 20, 'v')));
    VIADUCT_TRY(kernel_port_, start_server("kernel", false));
    VIADUCT_TRY(our_port_, start_server("viaduct", true));
    return {};
  }

  // One user on both sides; no sandbox and no namespaces, in which there is nothing but TCP.
  Result<int> start_server(const std::string& name, bool accelerated) {
    VIADUCT_TRY(const int port, free_port());
    const std::string file = name + ".conf";
    VIADUCT_CHECK(folder_->write(
        file,
        fmt::format("listen=YES\nlisten_address=127.0.0.1\nlisten_port={}\nbackground=NO\nrun_as_launching_user=YES\n"
                    "anonymous_enable=YES\nno_anon_password=YES\nwrite_enable=YES\nanon_upload_enable=YES\n"
                    "anon_other_write_enable=YES\nanon_umask=022\nanon_world_readable_only=NO\n"
                    "anon_root={}\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\nxferlog_enable=NO\n",
                    port, folder_->path())));
    VIADUCT_TRY(ChildProgram server, ChildProgram::start({.words = {vsftpd_, folder_->path() + "/" + file},
                                                          .processor = placement().theirs,
                                                          .accelerated = accelerated,
                                                          .silent = true,
                                                          .end_signal = SIGTERM}));
    servers_.push_back(std::make_unique<ChildProgram>(std::move(server)));
    VIADUCT_CHECK(wait_until_it_listens(*servers_.back(), port));
    return port;
  }

  // Whoever receives a file has to write it: pages of memory are found and cleared for it.
  double write_file(unsigned size) const {
    const std::vector<char> piece(65536, 'v');
    const Fd file(::open((folder_->path() + "/written").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const std::size_t bytes = std::size_t{size} << 20;
    const double took = nanoseconds([&] {
      for (std::size_t done = 0; done < bytes; done += piece.size())
        if (::write(file.get(), piece.data(), piece.size()) < 0) give_up("a RAM disk is full");
    });
    return static_cast<double>(bytes) / took;
  }

  // Of the transfer alone: connecting and logging in come before it.
  double transfer(int port, bool accelerated, unsigned size, bool up) const {
    const std::string file = fmt::format("{}/{}", folder_->path(), size);
    const std::string fetched = folder_->path() + "/fetched", received = folder_->path() + "/received";
    for (const std::string& former : {fetched, received}) ::unlink(former.c_str());  // to free its pages takes a while
    std::vector<std::string> words{curl_, "--silent", "--show-error", "--write-out",
                                   "%{time_pretransfer} %{time_total}\n"};
    if (up)
      words.insert(words.end(), {"--upload-file", file, fmt::format("ftp://127.0.0.1:{}/received", port)});
    else
      words.insert(words.end(), {"--output", fetched, fmt::format("ftp://127.0.0.1:{}/{}", port, size)});
    auto curl = ChildProgram::start(
        {.words = words, .processor = placement().mine, .accelerated = accelerated, .silent = true});
    if (!curl) give_up(curl.error().message());
    const auto said = curl->finish();
    if (!said) give_up(said.error().message());
    char* end = nullptr;
    const double before = std::strtod(said->c_str(), &end);
    const double total = std::strtod(end, nullptr);
    return static_cast<double>(std::size_t{size} << 20) / (total - before) / 1e9;
  }

  static constexpr const char* kBandwidth = "bandwidth";
  static constexpr const char* kFloor = "write() to the RAM disk";

  SocketsSuite sockets_;
  std::unique_ptr<ScratchFolder> folder_;
  std::string vsftpd_, curl_;
  int kernel_port_ = 0, our_port_ = 0;
  std::vector<std::unique_ptr<ChildProgram>> servers_;
};

}  // namespace

Result<Report> run_sockets_ftp(const Options& options) {
  return SocketsFtp(options).run();
}

}  // namespace viaduct::bench
