// `viaduct bench sockets-ftp`: files between two folders in memory, by an unmodified vsftpd and the classic client,
// ftp, which says itself how fast it was (SOVIA, table 5); then by curl, whose buffers are larger and whose writes
// smaller.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

class SocketsFtp {
 public:
  explicit SocketsFtp(const Options& options)
      : sockets_("sockets-ftp", "Files between RAM disks by vsftpd and its clients, each on its processor", options) {}

  Result<Report> run() {
    if (const Status ready = prepare(); !ready.ok()) return sockets_.run_without("FTP", ready.error().message());
    for (const unsigned size : {14u, 64u})
      for (const bool up : {false, true}) {
        if (sockets_.quick() && size > 14) continue;
        const std::string name = fmt::format("{} MB, {}", size, up ? "to the server" : "from the server");
        add(name, size, [=, this](bool accelerated) { return transfer(accelerated, size, up); });
        sockets_.suite().expect({name, kBandwidth, SocketsSuite::kUs, SocketsSuite::kTcp, Better::higher, 2});
        if (!curl_.empty())
          add(name + ", curl", size, [=, this](bool accelerated) { return transfer_by_curl(accelerated, size, up); });
      }
    sockets_.suite().note("to the server, TCP: ftp asks for a send buffer of 16 KB, and waits for acknowledgements");
    return sockets_.run(9);
  }

 private:
  Status prepare() {
    VIADUCT_TRY(vsftpd_, find_server_program("vsftpd", "vsftpd"));
    VIADUCT_TRY(ftp_, find_server_program("tnftp", "tnftp"));
    if (const auto curl = find_server_program("curl", "curl")) curl_ = *curl;
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    folder_ = std::make_unique<ScratchFolder>(std::move(folder));
    for (const unsigned size : {14u, 64u})
      VIADUCT_CHECK(folder_->write(fmt::format("{}", size), std::string(std::size_t{size} << 20, 'v')));
    for (const bool accelerated : {false, true}) {
      VIADUCT_TRY(ports_[accelerated], start_server(accelerated ? "viaduct" : "kernel", accelerated));
      VIADUCT_TRY(
          ChildProgram client,
          ChildProgram::start({.words = {ftp_, "-a", "-v", "-p", "127.0.0.1", std::to_string(ports_[accelerated])},
                               .processor = placement().mine,
                               .accelerated = accelerated,
                               .silent = true}));
      clients_[accelerated] = std::make_unique<ChildProgram>(std::move(client));
    }
    return {};
  }

  void add(const std::string& name, unsigned size, const std::function<double(bool)>& measure) {
    sockets_.suite().add(
        {name, kFloor, Kind::floor, kBandwidth, "GB/s", Better::higher, [this, size] { return write_file(size); }});
    for (const auto& [who, kind] : {std::pair{SocketsSuite::kTcp, Kind::peer}, {SocketsSuite::kUs, Kind::us}})
      sockets_.suite().add({name, who, kind, kBandwidth, "GB/s", Better::higher,
                            [measure, accelerated = kind == Kind::us] { return measure(accelerated); }});
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

  struct Files {
    std::string sent, fetched, received;
  };

  // To free the pages of former ones takes a while.
  Files fresh_files(unsigned size) const {
    const Files files{fmt::format("{}/{}", folder_->path(), size), folder_->path() + "/fetched",
                      folder_->path() + "/received"};
    for (const std::string& former : {files.fetched, files.received}) ::unlink(former.c_str());
    return files;
  }

  // In a session that stays open: "14680064 bytes received in 00:00 (1.86 GiB/s)".
  double transfer(bool accelerated, unsigned size, bool up) {
    const Files files = fresh_files(size);
    ChildProgram& client = *clients_[accelerated];
    client.tell(up ? fmt::format("put {} received", files.sent) : fmt::format("get {} {}", size, files.fetched));
    const std::string done = up ? "bytes sent in" : "bytes received in";
    for (;;) {
      const std::string line = client.hear();
      if (const std::size_t rate = line.find('('); rate != std::string::npos && line.find(done) != std::string::npos)
        return gigabytes(line.substr(rate + 1));
      if (line.starts_with("4") || line.starts_with("5")) give_up("FTP: " + line);
    }
  }

  static double gigabytes(const std::string& rate) {
    char* unit = nullptr;
    const double amount = std::strtod(rate.c_str(), &unit);
    const std::map<char, double> units{{'K', 0x1p10}, {'M', 0x1p20}, {'G', 0x1p30}, {'T', 0x1p40}};
    const auto known = units.find(unit[0] == ' ' ? unit[1] : unit[0]);
    return amount * (known == units.end() ? 1 : known->second) / 1e9;
  }

  // Of the transfer alone: connecting and logging in come before it.
  double transfer_by_curl(bool accelerated, unsigned size, bool up) {
    const Files files = fresh_files(size);
    const std::string server = fmt::format("ftp://127.0.0.1:{}/", ports_[accelerated]);
    std::vector<std::string> words{curl_, "--silent", "--show-error", "--write-out",
                                   "%{time_pretransfer} %{time_total}\n"};
    if (up)
      words.insert(words.end(), {"--upload-file", files.sent, server + "received"});
    else
      words.insert(words.end(), {"--output", files.fetched, fmt::format("{}{}", server, size)});
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
  std::string vsftpd_, ftp_, curl_;  // curl_: empty where there is none
  int ports_[2] = {};                // on kernel TCP, accelerated
  std::vector<std::unique_ptr<ChildProgram>> servers_;
  std::unique_ptr<ChildProgram> clients_[2];
};

}  // namespace

Result<Report> run_sockets_ftp(const Options& options) {
  return SocketsFtp(options).run();
}

}  // namespace viaduct::bench
